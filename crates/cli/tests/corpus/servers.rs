//! Ten kinds of servers on loopback, each of which says in `X-Saw` which host and path it was asked for.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{PATIENCE, Result, wait_until};

const JARS: &str = "/usr/share/java";
const TOMCAT: &[&str] = &[
    "annotations-api",
    "api",
    "catalina",
    "coyote",
    "el-api",
    "jaspic-api",
    "jni",
    "jsp-api",
    "juli",
    "servlet-api",
    "util",
    "util-scan",
];
const JETTY: &[&str] =
    &["jetty9-server.jar", "jetty9-http.jar", "jetty9-io.jar", "jetty9-util.jar", "servlet-api.jar"];

/// How a server says which path it saw.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// As it stands in a target, encoded.
    Encoded,
    /// All octets decoded.
    Decoded,
}

/// A kind of server.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// How it says what it saw.
    pub says: Says,
    /// It reads a request that has come with the one before. gunicorn's threads wait for more to come first.
    pub pipelines: bool,
    command: fn(&Path, u16) -> Result<Command>,
}

const fn kind(name: &'static str, says: Says, command: fn(&Path, u16) -> Result<Command>) -> Kind {
    Kind { name, says, pipelines: true, command }
}

/// All of them.
pub const KINDS: [Kind; 10] = [
    kind("nginx", Says::Decoded, nginx),
    kind("apache", Says::Decoded, apache),
    kind("node", Says::Encoded, node),
    kind("go", Says::Encoded, go),
    Kind { pipelines: false, ..kind("gunicorn", Says::Encoded, gunicorn) },
    kind("waitress", Says::Encoded, waitress),
    kind("hypercorn", Says::Encoded, hypercorn),
    kind("caddy", Says::Decoded, caddy),
    kind("tomcat", Says::Encoded, tomcat),
    kind("jetty", Says::Encoded, jetty),
];

/// A server that runs until this is dropped.
pub struct Server {
    pub kind: Kind,
    pub address: SocketAddr,
    child: Child,
}

impl Server {
    /// Starts it; it listens when this returns.
    pub fn start(kind: Kind) -> Result<Server> {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("corpus-{}", kind.name));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("root"))?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = fs::File::create(directory.join("log"))?;
        let mut command = (kind.command)(&directory, address.port())?;
        command.env("HOME", &directory).env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let server = Server { kind, address, child: command.spawn()? };
        wait_until(kind.name, PATIENCE * 3, || Ok(TcpStream::connect(address).is_ok()), |listens| *listens)?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/servers").join(name)
}

fn with<const N: usize>(program: &str, arguments: [&str; N]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The path of a new file with this text.
fn written(directory: &Path, name: &str, text: &str) -> Result<String> {
    let path = directory.join(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

fn nginx(directory: &Path, port: u16) -> Result<Command> {
    let here = directory.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String =
        temporary.iter().map(|name| format!("{name}_temp_path {here}/{name};\n")).collect();
    let text = format!(
        "daemon off; master_process off; pid {here}/pid; error_log {here}/error.log;\nevents {{}}\n\
         http {{ access_log off; keepalive_requests 1000000; {temporary}\
         server {{ listen 127.0.0.1:{port}; add_header X-Saw \"$host|$uri|\" always; location / {{ return 200; }} }} }}\n"
    );
    let file = written(directory, "nginx.conf", &text)?;
    Ok(with("nginx", ["-c", &file, "-p", &here.to_string()]))
}

/// There is no file that it could send, so it answers 404, and by then knows the path.
fn apache(directory: &Path, port: u16) -> Result<Command> {
    let here = directory.display();
    let modules = ["mpm_event", "authz_core", "headers"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let text = format!(
        "ServerRoot {here}\nServerName corpus\nPidFile {here}/pid\nErrorLog {here}/error.log\nListen 127.0.0.1:{port}\n{}\
         DocumentRoot {here}/root\nAllowEncodedSlashes On\nMaxKeepAliveRequests 0\n\
         Header always set X-Saw \"expr=%{{HTTP_HOST}}|%{{REQUEST_URI}}|\"\n",
        modules.concat()
    );
    let file = written(directory, "apache.conf", &text)?;
    Ok(with("apache2", ["-X", "-f", &file]))
}

fn node(_: &Path, port: u16) -> Result<Command> {
    Ok(with("node", [&source("node.js").display().to_string(), &port.to_string()]))
}

fn go(directory: &Path, port: u16) -> Result<Command> {
    let binary = directory.join("server").display().to_string();
    let mut build = with("go", ["build", "-o", &binary, &source("main.go").display().to_string()]);
    let built = build.env("GOCACHE", directory.with_file_name("go-cache")).status()?;
    assert!(built.success(), "go build");
    Ok(with(&binary, [&port.to_string()]))
}

/// Programs in Python are Debian's, with Debian's Python.
fn gunicorn(_: &Path, port: u16) -> Result<Command> {
    let (path, bind) = (source("").display().to_string(), format!("127.0.0.1:{port}"));
    let mut command = with("/usr/bin/gunicorn", ["--bind", &bind, "--pythonpath", &path]);
    command.args(["--worker-class", "gthread", "--threads", "16", "--keep-alive", "30", "wsgi:application"]);
    Ok(command)
}

fn waitress(_: &Path, port: u16) -> Result<Command> {
    Ok(with("/usr/bin/python3", [&source("wsgi.py").display().to_string(), &port.to_string()]))
}

fn hypercorn(_: &Path, port: u16) -> Result<Command> {
    let bind = format!("127.0.0.1:{port}");
    let mut command = with("/usr/bin/python3", ["-m", "hypercorn", "--bind", &bind, "asgi:application"]);
    command.current_dir(source(""));
    Ok(command)
}

fn caddy(directory: &Path, port: u16) -> Result<Command> {
    let text = format!(
        "{{\nadmin off\nauto_https off\n}}\nhttp://:{port} {{\nbind 127.0.0.1\n\
         header X-Saw \"{{http.request.hostport}}|{{http.request.orig_uri.path}}|\"\nrespond 200\n}}\n"
    );
    let file = written(directory, "Caddyfile", &text)?;
    Ok(with("caddy", ["run", "--config", &file, "--adapter", "caddyfile"]))
}

fn java<'a>(name: &str, jars: impl Iterator<Item = String> + 'a) -> Command {
    let jars: Vec<_> = jars.map(|name| format!("{JARS}/{name}")).collect();
    with("java", ["-cp", &jars.join(":"), &source(name).display().to_string()])
}

fn tomcat(directory: &Path, port: u16) -> Result<Command> {
    let mut command = java("Tomcat10.java", TOMCAT.iter().map(|name| format!("tomcat10-{name}.jar")));
    command.arg(port.to_string()).arg(directory.join("root"));
    Ok(command)
}

fn jetty(_: &Path, port: u16) -> Result<Command> {
    let mut command = java("Jetty9.java", JETTY.iter().map(|name| name.to_string()));
    command.arg(port.to_string());
    Ok(command)
}
