//! The UNIX socket over which `status`, `reload` and `drain` talk to a running daemon: one line of JSON each
//! way. The daemon serves it from the loop that also serves packets, so a client gets a fraction of a second,
//! and what takes longer runs in a thread.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::netns_inode;

/// Directory of the sockets, and of what else belongs to running daemons.
pub(crate) const DIRECTORY: &str = "/run/switchback";
/// Time that a client may take of the daemon: half for its request, half for the response.
const CLIENT_PATIENCE: Duration = Duration::from_millis(200);
/// Time that the daemon may take to answer: a reload has to read and apply a configuration.
const DAEMON_PATIENCE: Duration = Duration::from_secs(10);
/// Time from the creation of a socket until the daemon listens on it.
const LISTENS_AFTER: Duration = Duration::from_secs(1);
const LONGEST_REQUEST: usize = 1 << 16;
/// Attempts to use the directory, which another instance may remove between our creating and using it.
const ATTEMPTS: usize = 8;

/// A request to a running daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum Request {
    /// Return the status.
    Status,
    /// Read the configuration again.
    Reload {},
    /// Drain a node, or end its draining.
    Drain {
        /// Name of the node in the configuration.
        node: String,
        /// Whether the node drains from now on.
        on: bool,
    },
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// The status; its shape depends on the role.
    Status(serde_json::Value),
    /// The request was carried out.
    Done {
        /// One line for each change.
        lines: Vec<String>,
    },
    /// The request was not carried out.
    Failed {
        /// The reason.
        message: String,
    },
}

impl Response {
    /// The status of a daemon of this role.
    pub fn status(role: &str, status: &impl Serialize) -> Response {
        match serde_json::to_value(status) {
            Ok(mut value) => {
                value["role"] = role.into();
                Response::Status(value)
            }
            Err(error) => Response::Failed { message: format!("cannot write the status: {error}") },
        }
    }

    /// The request was not carried out, for this reason.
    pub fn failed(error: &Error) -> Response {
        Response::Failed { message: error.to_string() }
    }
}

/// What a command has done, one line for each change.
impl From<Result<Vec<String>>> for Response {
    fn from(done: Result<Vec<String>>) -> Response {
        done.map_or_else(|error| Response::failed(&error), |lines| Response::Done { lines })
    }
}

/// An answer, now or from a thread.
pub enum Answer {
    /// The answer.
    Now(Response),
    /// A closure that computes it in a thread of its own, because it takes long.
    Later(Box<dyn FnOnce() -> Response + Send>),
}

impl Answer {
    /// The status of a daemon of this role, the rest of which a thread computes.
    pub fn status<S: Serialize>(
        role: &'static str,
        rest: Result<impl FnOnce() -> Result<S> + Send + 'static>,
    ) -> Answer {
        let status = move |rest: Result<S>| match rest {
            Ok(status) => Response::status(role, &status),
            Err(error) => Response::failed(&error),
        };
        match rest {
            Ok(rest) => Answer::Later(Box::new(move || status(rest()))),
            Err(error) => Response::failed(&error).into(),
        }
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Answer {
        Answer::Now(response)
    }
}

/// A running daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// `switch`, `node` or `client`.
    pub role: String,
    /// The interface it serves.
    pub interface: String,
    /// Its socket.
    pub path: PathBuf,
}

/// The daemon's end of the socket.
#[derive(Debug)]
pub struct ControlServer {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlServer {
    /// Listens on the socket of this role and interface in the calling thread's network namespace. One left
    /// by a dead process is replaced; a live process is an error with its pid.
    pub fn bind(role: &str, interface: &str) -> Result<ControlServer> {
        ControlServer::bind_to(path_of(role, interface)?, &format!("{role} on {interface}"))
    }

    fn bind_to(path: PathBuf, who: &str) -> Result<ControlServer> {
        let doing = || format!("listen on {}", path.display());
        match UnixStream::connect(&path) {
            Ok(stream) => {
                let owner = getsockopt(&stream, sockopt::PeerCredentials).doing(doing)?.pid();
                return Err(Error::new(format!("a {who} is already running, pid {owner}"))
                    .remedy(format!("stop it first: kill {owner}")));
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(&path).doing(|| format!("remove the stale {}", path.display()))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::cannot(doing(), error)),
        }
        let directory = path.parent().unwrap_or(Path::new(DIRECTORY));
        sweep(directory);
        let mut attempts = 0;
        let listener = loop {
            // Nobody else can reach the socket before its own mode is set.
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.doing(|| format!("create {}", directory.display()))?;
            attempts += 1;
            match UnixListener::bind(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound && attempts < ATTEMPTS => {}
                bound => break bound.doing(doing)?,
            }
        };
        let server = ControlServer { listener, path };
        fs::set_permissions(&server.path, fs::Permissions::from_mode(0o600))
            .and_then(|()| server.listener.set_nonblocking(true))
            .doing(|| format!("prepare {}", server.path.display()))?;
        Ok(server)
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Serves all waiting clients. One that sends nothing, or too much, or does not read is dropped.
    pub fn accept_and_serve<A: Into<Answer>>(&mut self, mut handler: impl FnMut(Request) -> A) -> Result<()> {
        loop {
            match self.listener.accept() {
                // A client's misbehaviour is its own affair.
                Ok((stream, _)) => drop(serve(stream, &mut handler)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::cannot(format!("accept on {}", self.path.display()), error)),
            }
        }
    }
}

/// The socket of a role and interface in the calling thread's network namespace.
pub fn path_of(role: &str, interface: &str) -> Result<PathBuf> {
    Ok(Path::new(DIRECTORY).join(format!("{role}-{interface}-{}.sock", netns_inode()?)))
}

/// Removes the sockets of processes that were killed. When their network namespace is deleted nobody is left
/// to do so, and its inode may be given to another one, which would then seem to have a daemon.
fn sweep(directory: &Path) {
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    // What is no socket refuses connections, too.
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "sock")) {
        let age = fs::metadata(&path).and_then(|data| data.modified()).map(|made| made.elapsed());
        let is_old = matches!(age, Ok(Ok(age)) if age > LISTENS_AFTER);
        let refused =
            || UnixStream::connect(&path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if is_old && refused() {
            // If that fails, it is no worse than before.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Readable when [`ControlServer::accept_and_serve`] has something to do.
impl AsFd for ControlServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // It is useless either way; the next instance replaces it.
        let _ = fs::remove_file(&self.path);
        if let Some(directory) = self.path.parent() {
            // Fails while other instances run.
            let _ = fs::remove_dir(directory);
        }
    }
}

fn serve<A: Into<Answer>>(mut stream: UnixStream, handler: &mut impl FnMut(Request) -> A) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(CLIENT_PATIENCE / 2))?;
    let line = read_line(&mut stream, CLIENT_PATIENCE / 2, LONGEST_REQUEST)?;
    let answer = match serde_json::from_slice(&line) {
        Ok(request) => handler(request).into(),
        Err(error) => Answer::Now(Response::Failed { message: format!("not a request: {error}") }),
    };
    match answer {
        Answer::Now(response) => write_line(&mut stream, &response),
        Answer::Later(work) => {
            let answer = move || {
                // Whoever has asked may have gone.
                let _ = write_line(&mut stream, &work());
            };
            thread::Builder::new().name("control".to_owned()).spawn(answer).map(drop)
        }
    }
}

/// The client's end of the socket.
pub struct ControlClient;

impl ControlClient {
    /// Sends a request and returns the answer, within `DAEMON_PATIENCE`.
    pub fn call(path: &Path, request: &Request) -> Result<Response> {
        ControlClient::call_within(DAEMON_PATIENCE, path, request)
    }

    /// Sends a request and returns the answer, within `patience`. Where the daemon has closed the connection without
    /// reading the request, because this process had no CPU for that long, the request is sent again.
    pub fn call_within(patience: Duration, path: &Path, request: &Request) -> Result<Response> {
        let doing = || format!("talk to the daemon at {}", path.display());
        let deadline = Instant::now() + patience;
        let line = loop {
            match ControlClient::try_call(patience, path, request) {
                Err(error) if is_unread(&error) && Instant::now() < deadline => {}
                called => break called.doing(doing)?,
            }
        };
        serde_json::from_slice(&line).doing(doing)
    }

    fn try_call(patience: Duration, path: &Path, request: &Request) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(path)?;
        write_line(&mut stream, request)?;
        read_line(&mut stream, patience, usize::MAX)
    }
}

/// The peer of a UNIX socket has closed it before it read what was written: EPIPE for the writer, ECONNRESET for the
/// reader (`unix_release_sock()`).
fn is_unread(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// The daemons of the calling thread's network namespace, in order of role and interface. Some may have died.
pub fn find_sockets() -> Result<Vec<Instance>> {
    let ending = format!("-{}.sock", netns_inode()?);
    let entries = match fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.doing(|| format!("read {DIRECTORY}"))?,
    };
    let mut found: Vec<Instance> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (role, interface) = name.strip_suffix(&ending)?.split_once('-')?;
            Some(Instance { role: role.to_owned(), interface: interface.to_owned(), path: entry.path() })
        })
        .collect();
    found.sort_by(|a, b| (&a.role, &a.interface).cmp(&(&b.role, &b.interface)));
    Ok(found)
}

fn write_line(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads up to the end of the line, within `patience` altogether.
fn read_line(stream: &mut UnixStream, patience: Duration, longest: usize) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + patience;
    let mut line = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => line.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if line.ends_with(b"\n") {
            return Ok(line);
        }
        if line.len() > longest {
            return Err(ErrorKind::FileTooLarge.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn only_sockets_of_dead_processes_are_swept() {
        let directory = std::env::temp_dir().join(format!("switchback-sweep-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let [dead, live, other] = ["dead.sock", "live.sock", "withdrawn-1"].map(|name| directory.join(name));
        drop(UnixListener::bind(&dead).unwrap());
        let _listens = UnixListener::bind(&live).unwrap();
        fs::write(&other, "").unwrap();
        thread::sleep(LISTENS_AFTER + Duration::from_millis(100));
        sweep(&directory);
        let left = [&dead, &live, &other].map(|path| path.exists());
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn a_request_that_was_not_read_is_sent_again() {
        let directory = std::env::temp_dir().join(format!("switchback-control-again-{}", std::process::id()));
        let path = directory.join("test.sock");
        let mut server = ControlServer::bind_to(path.clone(), "test").unwrap();
        let called = thread::spawn({
            let path = path.clone();
            move || ControlClient::call(&path, &Request::Status).unwrap()
        });
        let close_unread = |server: &ControlServer| {
            while server.listener.accept().is_err() {
                thread::yield_now();
            }
        };
        close_unread(&server);
        close_unread(&server);
        while !called.is_finished() {
            server.accept_and_serve(|_| Response::Done { lines: vec!["third".to_owned()] }).unwrap();
        }
        assert_eq!(called.join().unwrap(), Response::Done { lines: vec!["third".to_owned()] });
    }

    #[test]
    fn an_answer_that_takes_long_keeps_nobody_else() {
        let directory = std::env::temp_dir().join(format!("switchback-control-{}", std::process::id()));
        let path = directory.join("test.sock");
        let mut server = ControlServer::bind_to(path.clone(), "test").unwrap();
        let ask = |request: Request| {
            let path = path.clone();
            thread::spawn(move || ControlClient::call(&path, &request).unwrap())
        };
        let (go_on, may_go_on) = channel::<()>();
        let mut may_go_on = Some(may_go_on);
        let long = ask(Request::Status);
        let mut short = None;
        while short.as_ref().is_none_or(|short: &thread::JoinHandle<_>| !short.is_finished()) {
            let handler = |request| match (request, may_go_on.take()) {
                (Request::Status, Some(gate)) => Answer::Later(Box::new(move || {
                    gate.recv_timeout(DAEMON_PATIENCE).unwrap();
                    Response::Done { lines: vec!["long".to_owned()] }
                })),
                (_, gate) => {
                    may_go_on = gate;
                    Response::Done { lines: Vec::new() }.into()
                }
            };
            server.accept_and_serve(handler).unwrap();
            if may_go_on.is_none() && short.is_none() {
                short = Some(ask(Request::Reload {}));
            }
            thread::yield_now();
        }
        assert!(!long.is_finished());
        assert_eq!(short.unwrap().join().unwrap(), Response::Done { lines: Vec::new() });
        go_on.send(()).unwrap();
        assert_eq!(long.join().unwrap(), Response::Done { lines: vec!["long".to_owned()] });
    }
}
