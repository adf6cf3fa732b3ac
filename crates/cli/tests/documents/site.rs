//! Machines on which the commands of a document run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use switchback_lab::{Host, Lab, Process};

use super::common::{PATIENCE, PROGRAM, Result, said_by, write_script};

/// The machines of a document.
pub struct Site {
    pub lab: Lab,
    /// Where its commands run.
    pub directory: PathBuf,
    /// What they find before all else.
    pub path: PathBuf,
}

impl Site {
    pub fn new(nodes: usize) -> Result<Site> {
        let lab = Lab::builder().nodes(nodes).up()?;
        let [directory, path] = ["site", "bin"].map(|name| lab.directory().join(name));
        fs::create_dir(&directory)?;
        fs::create_dir(&path)?;
        symlink(PROGRAM, path.join("switchback"))?;
        let site = Site { lab, directory, path };
        // The hosts of a lab share one table of processes.
        site.stub(
            "pidof",
            "for pid in $(PATH=/usr/bin:/bin pidof \"$@\"); do\n\
             if [ \"/proc/$pid/ns/net\" -ef /proc/self/ns/net ]; then echo \"$pid\"; fi\ndone",
        )?;
        Ok(site)
    }

    /// A program that stands for one that the hosts have not.
    pub fn stub(&self, name: &str, script: &str) -> Result {
        write_script(&self.path.join(name), &format!("#!/bin/sh\n{script}\n"))
    }

    pub fn write(&self, name: &str, text: &str) -> Result {
        Ok(fs::write(self.directory.join(name), text)?)
    }

    /// A shell with this text on a host. Logs are in the lab's directory.
    pub fn shell(&self, host: &Host, text: &str) -> Command {
        let logs = format!("{}/", self.directory.display());
        let mut command = host.command("sh");
        command.args(["-c", &text.replace("/var/log/switchback/", &logs)]);
        in_place(&mut command, &self.path, &self.directory);
        command
    }

    /// Runs a command to its end, which has to be a good one; what it printed.
    pub fn run(&self, host: &Host, text: &str) -> Result<String> {
        said_by(&mut self.shell(host, text))
    }

    /// Starts a command that is to stay, and waits until it says `ready`.
    pub fn start(&self, host: &Host, name: &str, text: &str) -> Result<Process> {
        let process = host.spawn(name, self.shell(host, &format!("exec {text}")))?;
        process.wait_for_log("ready", PATIENCE)?;
        Ok(process)
    }

    /// Asks at the VIP.
    pub fn get(&self, path: &str) -> Result<String> {
        self.run(self.lab.client(0), &format!("curl -sS --fail --max-time 5 http://192.0.2.100{path}"))
    }
}

pub fn in_place(command: &mut Command, path: &Path, directory: &Path) {
    let inherited = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{inherited}", path.display())).env("SHELL", "/bin/sh");
    command.current_dir(directory).stdin(Stdio::null());
}
