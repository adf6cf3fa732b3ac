//! A real server that accepts slowly: Apache httpd with the prefork MPM.
//!
//! Each of its processes accepts one connection, answers one request and closes, so excess connections wait in the
//! listener's accept queue and nowhere else. A threaded or event-driven server would accept at once and queue
//! internally, outside the accept queue. Requests are answered by a few lines of Lua (mod_lua) that sleep, because
//! computation would take CPU time from the other hosts.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::error::{Doing, Result};
use crate::host::Host;
use crate::server::{Files, Server, ServerOptions, apache_command, apache_modules};

/// Time for which a process waits for a request, in seconds. A client that has timed out may never send it.
const REQUEST_TIMEOUT_S: u32 = 5;

/// Service time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceTime {
    /// A constant time.
    Fixed(Duration),
    /// Exponentially distributed with this mean, by a generator that every process seeds with the time.
    Exponential(Duration),
}

/// Options of a slow server, which answers every path with its host's name.
#[derive(Clone, Debug)]
pub struct SlowServerOptions {
    /// Its addresses; by default, port 80 of all addresses of both families.
    pub listen: Vec<SocketAddr>,
    /// Processes, each of which has one connection at a time.
    pub workers: u32,
    /// The second argument of `listen`. Linux lets one more connection wait.
    pub backlog: u32,
    /// Service time of a request.
    pub service: ServiceTime,
}

impl SlowServerOptions {
    /// A server on port 80 of all addresses of both families.
    pub fn new(workers: u32, backlog: u32, service: ServiceTime) -> Self {
        SlowServerOptions { listen: ServerOptions::default().listen, workers, backlog, service }
    }
}

impl Host {
    /// Starts a slow server and waits until it listens.
    pub fn slow_server(&self, options: &SlowServerOptions) -> Result<Server> {
        let script = self.directory().join("answer.lua");
        fs::write(&script, script_text(self.name(), options.service))
            .doing(|| format!("write {}", script.display()))?;
        self.start_server(
            "slow",
            &options.listen,
            |files| configuration(self.name(), files, options, &script),
            |_, path| apache_command(path),
        )
    }
}

fn script_text(host: &str, service: ServiceTime) -> String {
    let (mean, factor) = match service {
        ServiceTime::Fixed(time) => (time, "1"),
        ServiceTime::Exponential(mean) => (mean, "-math.log(1 - math.random())"),
    };
    let mean_us = mean.as_micros();
    format!(
        "local seeded = false
function handle(r)
    if not seeded then
        math.randomseed(r.clock())
        seeded = true
    end
    r.usleep(math.floor({mean_us} * {factor}))
    r:puts(\"{host}\")
    return apache2.OK
end
"
    )
}

fn configuration(host: &str, files: &Files, options: &SlowServerOptions, script: &Path) -> String {
    let listen: String = options.listen.iter().map(|address| format!("Listen {address}\n")).collect();
    format!(
        "{modules}ServerRoot {directory}
ServerName {host}
User www-data
Group www-data
PidFile {pid}
Mutex file:{directory}
ErrorLog /dev/stderr
{listen}ListenBacklog {backlog}
DocumentRoot {root}
Header always set X-Node {host}
KeepAlive Off
Timeout {REQUEST_TIMEOUT_S}
StartServers {workers}
ServerLimit {workers}
MinSpareServers 1
MaxSpareServers {workers}
MaxRequestWorkers {workers}
LuaScope thread
LuaMapHandler ^/ {script} handle
<Directory />
    Require all granted
</Directory>
",
        modules = apache_modules(&["mpm_prefork", "authz_core", "headers", "lua"]),
        directory = files.directory.display(),
        pid = files.path("apache.pid"),
        backlog = options.backlog,
        root = files.root.display(),
        workers = options.workers,
        script = script.display(),
    )
}
