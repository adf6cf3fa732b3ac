//! `switchback top` in a pseudo terminal, and without one, of a made-up switch behind a control socket.

#[path = "../../admin/tests/made_up/mod.rs"]
mod made_up;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use switchback_runtime::control::Response;

const PATIENCE: Duration = Duration::from_secs(10);
/// A switch with so many nodes, as far as its socket goes.
fn serve(test: &str, nodes: usize) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.sock"));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let begun = Instant::now();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            assert_eq!(request.trim(), "{\"request\":\"status\"}");
            let status = Response::status("switch", &made_up::switch(nodes, true, begun.elapsed()));
            writeln!(stream, "{}", serde_json::to_string(&status).unwrap()).unwrap();
        }
    });
    path
}

/// The program in a terminal of its own.
struct Terminal {
    keys: File,
    /// The program's side of the terminal.
    inside: File,
    written: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    program: Child,
}

impl Terminal {
    fn start(socket: &Path, (columns, rows): (u16, u16)) -> Terminal {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let (outside, inside) = (File::from(pty.master), File::from(pty.slave));
        let side = || Stdio::from(inside.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_switchback"));
        command.args(["top", "--socket"]).arg(socket).stdin(side()).stdout(side()).stderr(side());
        let program = command.spawn().unwrap();
        let (say, written) = channel();
        let mut read = outside.try_clone().unwrap();
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(len) = read.read(&mut part) {
                if len == 0 || say.send(part[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(rows, columns, 0);
        Terminal { keys: outside, inside, written, screen, program }
    }

    /// Waits until the screen is so.
    fn wait_until(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self.screen.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.written.recv_timeout(left) {
                Ok(part) => self.screen.process(&part),
                Err(_) => panic!("{what} not on the screen:\n{}", self.screen.screen().contents()),
            }
        }
    }

    /// Waits until these words are on the screen that the program has taken.
    fn wait_for(&mut self, words: &str) {
        self.wait_until(words, |screen| screen.alternate_screen() && screen.contents().contains(words));
    }

    /// Waits until it has given the terminal back, as it was; then it ends well.
    fn end(mut self) {
        self.wait_until("the shell is", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
        let settings = self.stty(&["-a"]);
        assert!(!settings.contains("-icanon") && !settings.contains("-echo "), "{settings}");
    }

    fn resize(&mut self, columns: u16, rows: u16) {
        self.stty(&["cols", &columns.to_string(), "rows", &rows.to_string()]);
        self.screen.screen_mut().set_size(rows, columns);
        self.signal(Signal::SIGWINCH);
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// What stty says of the terminal, or does to it.
    fn stty(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("stty");
        let output = command.args(arguments).stdin(self.inside.try_clone().unwrap()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.program.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn it_takes_the_terminal_and_gives_it_back() {
    let mut terminal = Terminal::start(&serve("keys", 5), (110, 40));
    for words in ["switch, up 1 h 2 min", "NODE", "web5", "req/s", "? help  q end"] {
        terminal.wait_for(words);
    }
    terminal.wait_until("rates are", |screen| screen.contents().contains("bit/s back"));
    assert!(terminal.stty(&["-a"]).contains("-icanon"), "keys come one by one");
    terminal.press("?");
    terminal.wait_for("the column to sort by");
    terminal.press("qq");
    terminal.end();
}

#[test]
fn a_signal_gives_the_terminal_back_too() {
    let mut terminal = Terminal::start(&serve("signal", 2), (80, 24));
    terminal.wait_for("web2");
    terminal.signal(Signal::SIGTERM);
    terminal.end();
}

#[test]
fn it_follows_the_size_of_the_terminal() {
    let mut terminal = Terminal::start(&serve("size", 40), (110, 70));
    terminal.wait_for("web40");
    terminal.resize(90, 10);
    terminal.wait_for("0 above, 34 below");
    terminal.press("\x1b[F");
    terminal.wait_for("34 above, 0 below");
    terminal.resize(110, 70);
    terminal.wait_for("web1 ");
    terminal.press("\x03");
    terminal.end();
}

#[test]
fn without_a_terminal_it_prints_one_table() {
    let socket = serve("plain", 3);
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchback"));
    let output = command.args(["top", "--socket"]).arg(&socket).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = text.lines().find(|line| line.starts_with("web3")).unwrap();
    assert!(row.contains(" up ") && row.contains("bit/s") && !text.contains('\x1b'), "{text}");
    let gone = command.args(["--once"]).args(["--socket", "/nowhere.sock"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(2), "{gone:?}");
}
