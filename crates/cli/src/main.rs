//! The `switchback` command: parses arguments and makes one call. Each file is one group of commands; the work is done
//! in the libraries.

// Comments of arguments are help texts, in which `[[switch]]` is a table of the configuration.
#![allow(rustdoc::broken_intra_doc_links)]

mod apply;
mod config;
mod control;
mod daemon;
mod demo;
mod doctor;
mod documents;
mod drain;
mod explain;
mod failure;
mod files;
mod gateway;
mod join;
mod lab;
mod ready;
mod sim;
mod status;
mod survey;
mod table;
#[cfg(test)]
mod tests;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use nix::sys::signal::{SigHandler, Signal};

use failure::Failure;

/// A layer-7 load balancer whose responses do not pass through it.
///
/// Exit status: 0 if all went well, 1 if the configuration is invalid (of `ready`: if the switch is not), 2 if a file
/// cannot be read, the system refuses or the command line is wrong.
#[derive(Parser)]
#[command(name = "switchback", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Switch(daemon::Switch),
    Run(daemon::Run),
    Node(daemon::Node),
    Client(daemon::Client),
    Gateway(gateway::Gateway),
    Check(files::Check),
    Apply(apply::Apply),
    History(apply::History),
    Rollback(apply::Rollback),
    Keygen(files::Keygen),
    Doctor(doctor::Doctor),
    Test(survey::Test),
    Explain(explain::Explain),
    Status(control::ShowStatus),
    Ready(ready::Ready),
    Top(top::Top),
    Reload(control::Reload),
    Drain(drain::Drain),
    Undrain(drain::Undrain),
    NodeNames(drain::NodeNames),
    #[command(subcommand)]
    Lab(lab::Lab),
    #[command(subcommand)]
    Sim(sim::Sim),
    Documents(documents::Documents),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if !matches!(
        command,
        Command::Switch(_)
            | Command::Run(_)
            | Command::Node(_)
            | Command::Client(_)
            | Command::Gateway(_)
            | Command::Lab(_)
    ) {
        end_with_the_reader();
    }
    let result = match command {
        Command::Switch(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Node(command) => command.run(),
        Command::Client(command) => command.run(),
        Command::Gateway(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Apply(command) => command.run(),
        Command::History(command) => command.run(),
        Command::Rollback(command) => command.run(),
        Command::Keygen(command) => command.run(),
        Command::Doctor(command) => command.run(),
        Command::Test(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Ready(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Reload(command) => command.run(),
        Command::Drain(command) => command.run(),
        Command::Undrain(command) => command.run(),
        Command::NodeNames(command) => command.run(),
        Command::Lab(command) => command.run(),
        Command::Sim(command) => command.run(),
        Command::Documents(command) => command.run(Cli::command()),
    };
    result.map_or_else(|failure: Failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// Restores the default action of SIGPIPE, which Rust ignores, so that `switchback status | head` ends without a panic.
/// The daemons keep it ignored, since a client that closes their socket would end them; so does the lab, which has to
/// be taken down.
fn end_with_the_reader() {
    // SAFETY: the default action runs no code of the program.
    let _ = unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}
