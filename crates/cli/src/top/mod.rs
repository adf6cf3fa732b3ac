//! `top`: a switch's state in a terminal, once a second.
//!
//! It shows the page of `[admin]`, from the same [`View`], but over the control socket, and needs no configuration.

mod app;
mod cells;
mod draw;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event;
use switchback_access_log::escape::printable;
use switchback_admin::{History, View};
use switchback_runtime::Signals;
use switchback_runtime::control::find_sockets;
use switchback_status::Status;

use crate::control::Target;
use crate::failure::Failure;
use app::App;

/// Interval between requests to the switch.
const EVERY: Duration = Duration::from_secs(1);
/// Timeout of the switch's answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest delay of a signal's handling.
const LOOK: Duration = Duration::from_millis(100);

/// Show what a switch is doing, once a second: services, nodes, latencies, errors
///
/// Keys: arrows choose the column to sort by and scroll, r turns the order around, ? helps, q ends. Where
/// there is no terminal, or with --once, one table is printed.
#[derive(Args)]
pub struct Top {
    /// Print one table, after a second, and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    target: Target,
}

impl Top {
    pub fn run(self) -> Result<(), Failure> {
        let socket = self.socket()?;
        if self.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            print!("{}", printable(&cells::plain(&look_once(&socket)?)));
            return Ok(());
        }
        let mut signals = Signals::take()?;
        let mut history = History::default();
        let mut app = App::new(look(&socket, &mut history)?);
        // From here to restore(), even after a panic, the application controls the terminal.
        let mut terminal = ratatui::try_init().map_err(|error| cannot("take the terminal", &error))?;
        let ended = show(&mut app, &mut terminal, (&socket, &mut history), &mut signals);
        ratatui::restore();
        ended.map_err(|error| cannot("use the terminal", &error))
    }

    /// The socket of a switch: other processes have no nodes to show.
    fn socket(&self) -> Result<PathBuf, Failure> {
        if let Some(socket) = &self.target.socket {
            return Ok(socket.clone());
        }
        let is_switch =
            |instance: &switchback_runtime::control::Instance| instance.role == switchback_switch::ROLE;
        let found = find_sockets()?.into_iter().find(is_switch);
        found.map(|instance| instance.path).ok_or_else(|| {
            Failure::system(
                "no switch runs in this network namespace; start one, name its socket with --socket, or see what a node \
                 is doing with: switchback status",
            )
        })
    }
}

fn cannot(doing: &str, error: &io::Error) -> Failure {
    Failure::system(format!("cannot {doing}: {error}; `switchback top --once` needs none"))
}

/// Asks the switch, and adds the answer to the history.
fn look(socket: &Path, history: &mut History) -> Result<View, Failure> {
    match Status::ask(socket, PATIENCE)? {
        Status::Switch(status) => history.push(Instant::now(), *status),
        _ => {
            let path = socket.display();
            return Err(Failure::system(format!(
                "{path} is not the socket of a switch; see it with: switchback status"
            )));
        }
    }
    history.view().ok_or_else(|| Failure::system("the switch has said nothing"))
}

/// Asks twice, since rates need two samples.
fn look_once(socket: &Path) -> Result<View, Failure> {
    let mut history = History::default();
    look(socket, &mut history)?;
    thread::sleep(EVERY);
    look(socket, &mut history)
}

/// Shows the switch until a key or a signal ends it.
fn show(
    app: &mut App,
    terminal: &mut ratatui::DefaultTerminal,
    (socket, history): (&Path, &mut History),
    signals: &mut Signals,
) -> io::Result<()> {
    let mut due = Instant::now() + EVERY;
    let mut is_new = true;
    while !app.is_over {
        let wishes = signals.arrived();
        // SIGHUP: the terminal is gone.
        if wishes.end || wishes.reload {
            break;
        }
        if Instant::now() >= due {
            app.tell(look(socket, history).map_err(|failure| failure.to_string()));
            (due, is_new) = (Instant::now() + EVERY, true);
        }
        if is_new {
            terminal.draw(|frame| draw::draw(frame, app))?;
        }
        let patience = LOOK.min(due.saturating_duration_since(Instant::now()));
        is_new = event::poll(patience)?;
        if is_new {
            // A changed size is an event, too.
            app.on(&event::read()?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
