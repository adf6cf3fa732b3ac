//! Where people look: what the daemons tell over HTTP, and logs on terminals.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::log_file::LogFile;
use crate::common::{PATIENCE, Plan, Result, wait_until};
use crate::victims::{Scene, plan};

/// A page of somebody else whose name has come to mean this machine (DNS rebinding) reads nothing.
#[test]
fn other_names_are_told_nothing() -> Result {
    let scene = Scene::start_with(Plan { admin: true, ..plan() })?;
    let lab = &scene.cluster.lab;
    for host in [lab.switch(0), lab.node(0)] {
        let status = |name: &str| -> Result<String> {
            let field = format!("Host: {name}");
            let words = ["curl", "-sS", "--max-time", "10", "-o", "/dev/null", "-w", "%{response_code}"];
            let more = ["-H", &field, "http://127.0.0.1:9180/metrics"];
            Ok(host.run([&words[..], &more].concat())?.success()?)
        };
        for name in ["127.0.0.1:9180", "localhost:9180", "[::1]:9180", "localhost"] {
            assert_eq!(status(name)?, "200", "{name}");
        }
        for name in
            ["evil.example:9180", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9180"]
        {
            assert!(status(name)?.starts_with('4'), "{name}: {}", status(name)?);
        }
    }
    scene.down()
}

/// Characters that terminals obey, or that turn the text around, stand in a log as text.
#[test]
fn logs_say_nothing_to_terminals() -> Result {
    let named = ["combined", "json"].map(|format| (format, LogFile::new(&format!("terminal-{format}"))));
    for (format, file) in named {
        let lines = format!("path = \"{}\"\nformat = \"{format}\"", file.text());
        let scene = Scene::start_with(Plan { access_log: Some(lines), ..plan() })?;
        let vip = SocketAddr::new(scene.cluster.lab.vip4().into(), 80);
        let mut stream = scene.cluster.client().tcp_connect(vip, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let field = "\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200f}\u{61c}\u{85}\u{feff}|end";
        write!(
            stream,
            "GET /small?terminal HTTP/1.1\r\nHost: a\r\nUser-Agent: {field}\r\nReferer: {field}\r\n\r\n"
        )?;
        read_some(&mut stream)?;
        let text = || Ok(String::from_utf8_lossy(&fs::read(&file.0)?).into_owned());
        let text = wait_until("the line", PATIENCE, text, |text| text.contains("?terminal"))?;
        let obeyed = |c: char| {
            c.is_control() && c != '\n'
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
        };
        let found: Vec<char> = text.chars().filter(|c| obeyed(*c)).collect();
        assert!(found.is_empty(), "{format}: {found:?} in the log");
        scene.down()?;
    }
    Ok(())
}

fn read_some(stream: &mut TcpStream) -> Result {
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    Ok(())
}
