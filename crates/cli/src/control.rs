//! `status` and `reload`: requests to the processes on this machine.

use std::path::PathBuf;

use clap::Args;
use switchback_access_log::escape::{printable, printable_json};
use switchback_runtime::control::{ControlClient, Request, Response, find_sockets};
use switchback_status::Status;

use crate::failure::Failure;
use crate::status;

/// Show what the switch, the node agent or the client shim on this machine is doing
///
/// Asks every process of this network namespace unless told which.
#[derive(Args)]
pub struct ShowStatus {
    /// Print JSON, one line for each process
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl ShowStatus {
    pub fn run(self) -> Result<(), Failure> {
        self.target.ask(&Request::Status, |response, first| {
            let Response::Status(value) = response else {
                return Err(Failure::system("the process answered something else than its status"));
            };
            if self.json {
                println!("{}", printable_json(&value.to_string()));
            } else {
                let text = status::render(&Status::read(value)?);
                print!("{}{}", if first { "" } else { "\n" }, printable(&text));
            }
            Ok(())
        })
    }
}

/// Apply a changed cluster.toml
///
/// All or nothing: if the file is invalid, what is running stays as it is. Prints what has changed.
#[derive(Args)]
pub struct Reload {
    #[command(flatten)]
    target: Target,
}

impl Reload {
    pub fn run(self) -> Result<(), Failure> {
        self.target.ask(&Request::Reload {}, |response, _| {
            let Response::Done { lines } = response else {
                return Err(Failure::system("the process answered something else than was asked"));
            };
            if lines.is_empty() {
                println!("nothing changed");
            }
            lines.iter().for_each(|line| println!("{}", printable(line)));
            Ok(())
        })
    }
}

/// Which processes are meant.
#[derive(Args)]
pub struct Target {
    /// The process's socket; without, all processes of this network namespace
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl Target {
    /// The sockets of the selected processes, at least one.
    pub fn sockets(&self) -> Result<Vec<PathBuf>, Failure> {
        let sockets = match &self.socket {
            Some(path) => vec![path.clone()],
            None => find_sockets()?.into_iter().map(|instance| instance.path).collect(),
        };
        if sockets.is_empty() {
            return Err(Failure::system(
                "no switch, node or client runs in this network namespace; start one, or name its socket with \
                 --socket",
            ));
        }
        Ok(sockets)
    }

    /// Asks each process, and passes the answers to `show`, whose second argument says whether this is the first
    /// answer. Continues after a failure; the last one is the result.
    fn ask(
        &self,
        request: &Request,
        mut show: impl FnMut(Response, bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut result = Ok(());
        for (index, path) in self.sockets()?.iter().enumerate() {
            let answered = match ControlClient::call(path, request) {
                // The exit status is that of an invalid file at the start.
                Ok(Response::Failed { message }) => Err(Failure::invalid(message)),
                Ok(response) => show(response, index == 0),
                Err(error) => Err(error.into()),
            };
            // An earlier failure is printed now, the last one by the caller.
            if let Err(failure) = answered
                && let Err(earlier) = std::mem::replace(&mut result, Err(failure))
            {
                earlier.report();
            }
        }
        result
    }
}
