//! Loads by unmodified clients, and what must come back.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use switchback_lab::{Host, Lab, within};

use super::cluster::Cluster;
use super::document::block;
use super::{PATIENCE, Result};

/// A document of the lab's servers.
#[derive(Clone)]
pub struct Document {
    pub path: &'static str,
    pub body: Arc<Vec<u8>>,
}

impl Document {
    /// One that the lab's servers have.
    pub fn of(lab: &Lab, path: &'static str) -> Result<Document> {
        let body = Arc::new(fs::read(format!("{}/documents{path}", lab.directory().display()))?);
        Ok(Document { path, body })
    }
}

/// The documents of both pools, small and large.
pub struct Documents {
    pub small: Document,
    pub large: Document,
    pub img_small: Document,
    pub img_large: Document,
}

impl Documents {
    pub fn of(lab: &Lab) -> Result<Documents> {
        let read = |path| Document::of(lab, path);
        Ok(Documents {
            small: read("/small")?,
            large: read("/1m")?,
            img_small: read("/img/small")?,
            img_large: read("/img/1m")?,
        })
    }
}

/// One response, as curl tells of it.
#[derive(Clone, Debug)]
pub struct Response {
    /// New connections for it: 0 or 1.
    pub connects: u64,
    pub status: u32,
    /// The node that sent it.
    pub node: String,
    pub size: u64,
    pub time: Duration,
}

const WRITE_OUT: &str =
    "%{stderr}curl: %{num_connects} %{response_code} %header{x-node} %{size_download} %{time_total}\\n";

/// Fetches one document after the other with one curl, on one connection unless options say otherwise, and
/// compares every byte.
pub fn fetch(
    host: &Host,
    gets: &[(String, Document)],
    options: &[&str],
    timeout: Duration,
) -> Result<Vec<Response>> {
    start_fetch(host, gets.to_vec(), options, timeout)?()
}

/// Downloads a document at 4 MB/s again and again until it is over. Returns how often.
pub fn download_until(
    host: &Host,
    url: &str,
    document: &Document,
    timeout: Duration,
    over: &AtomicBool,
) -> Result<usize> {
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        fetch(host, &[(url.to_owned(), document.clone())], &["--limit-rate", "4M"], timeout)?;
        count += 1;
    }
    Ok(count)
}

/// As [`fetch`], but the comparison is left to the returned function, so that something else can be done
/// meanwhile: in a thread, or it will not go on when the pipe is full.
pub fn start_fetch(
    host: &Host,
    gets: Vec<(String, Document)>,
    options: &[&str],
    timeout: Duration,
) -> Result<impl FnOnce() -> Result<Vec<Response>> + Send + use<>> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = host.directory().join(format!("curl-{number}.conf"));
    let lines: String = gets.iter().map(|(url, _)| format!("url = \"{url}\"\noutput = \"-\"\n")).collect();
    fs::write(&path, lines)?;
    let mut command = host.command("timeout");
    command.args([
        "--signal=KILL",
        &within(timeout).as_secs_f64().to_string(),
        "curl",
        "-sS",
        "--fail-early",
        "--fail",
    ]);
    command.args(["--write-out", WRITE_OUT, "-K"]).arg(&path).args(options);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut stdout, mut stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    Ok(move || {
        let said = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text)
        });
        let compared = compare(&mut stdout, &gets);
        if compared.is_err() {
            child.kill()?;
        }
        drop(stdout);
        let status = child.wait()?;
        let said = said.join().expect("the reader does not panic")?;
        compared.map_err(|error| format!("{error}; curl ended with {status} and said {}", tail(&said)))?;
        if !status.success() {
            return Err(format!("curl ended with {status}: {}", tail(&said)).into());
        }
        // curl's own words begin with `curl: (`.
        let lines = said.lines().filter_map(|line| line.strip_prefix("curl: "));
        lines.filter(|line| !line.starts_with('(')).map(parse).collect()
    })
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

fn compare(stdout: &mut impl Read, gets: &[(String, Document)]) -> Result {
    let mut got = vec![0; 1 << 16];
    for (index, (url, document)) in gets.iter().enumerate() {
        let mut rest = &document.body[..];
        while !rest.is_empty() {
            let wanted = rest.len().min(got.len());
            let len = stdout.read(&mut got[..wanted])?;
            let at = document.body.len() - rest.len();
            if len == 0 {
                return Err(format!("request {index} ({url}): the body ends after {at} bytes").into());
            }
            if got[..len] != rest[..len] {
                let offset = (0..len).find(|&offset| got[offset] != rest[offset]).expect("they differ");
                return Err(format!("request {index} ({url}): byte {} is wrong", at + offset).into());
            }
            rest = &rest[len..];
        }
    }
    if stdout.read(&mut got)? > 0 { Err("more bytes than all bodies have".into()) } else { Ok(()) }
}

fn parse(line: &str) -> Result<Response> {
    let words: Vec<&str> = line.split(' ').collect();
    let [connects, status, node, size, time] = words[..] else {
        return Err(format!("curl says {line:?}").into());
    };
    Ok(Response {
        connects: connects.parse()?,
        status: status.parse()?,
        node: node.to_owned(),
        size: size.parse()?,
        time: Duration::from_secs_f64(time.parse()?),
    })
}

/// `count` requests that change the pool each time, every fourth for a mebibyte.
pub fn alternating(
    documents: &Documents,
    count: usize,
    url: impl Fn(&str) -> String,
) -> Vec<(String, Document)> {
    let choose = |index: usize| {
        // Both pools have large documents: of eight requests, the last two.
        let document = match (index % 2, index % 8 >= 6) {
            (0, false) => &documents.small,
            (0, true) => &documents.large,
            (_, false) => &documents.img_small,
            (_, true) => &documents.img_large,
        };
        (url(document.path), document.clone())
    };
    (0..count).map(choose).collect()
}

/// The nodes that answer twelve requests on connections of their own.
pub fn answering(cluster: &Cluster) -> Result<Vec<String>> {
    let small = Documents::of(&cluster.lab)?.small;
    let gets = vec![(cluster.url4("/small"), small); 12];
    let responses = fetch(cluster.client(), &gets, &["-H", "Connection: close"], PATIENCE)?;
    let mut nodes: Vec<String> = responses.into_iter().map(|response| response.node).collect();
    nodes.sort();
    nodes.dedup();
    Ok(nodes)
}

/// One document, with curl's own time limit.
pub fn get(host: &Host, url: &str, document: &Document) -> Result<Response> {
    let responses = fetch(host, &[(url.to_owned(), document.clone())], &[], PATIENCE)?;
    Ok(responses.into_iter().next().ok_or("curl says nothing")?)
}

/// What wrk says of a load in which nothing failed.
#[derive(Debug)]
pub struct Load {
    pub requests: u64,
    pub report: String,
}

/// Runs wrk; any error that it reports is one here.
pub fn wrk(host: &Host, url: &str, connections: u32, options: &[&str]) -> Result<Load> {
    let seconds = super::load_seconds();
    let (connections, duration) = (format!("-c{connections}"), format!("-d{seconds}s"));
    let words = [&["wrk", "-t1", &connections, &duration, "--latency", "--timeout", "2s"], options, &[url]];
    let report = host.run_within(Duration::from_secs(seconds) + PATIENCE, words.concat())?.success()?;
    if report.contains("Socket errors") || report.contains("Non-2xx") {
        return Err(format!("a load with errors: {report}").into());
    }
    let requests = report.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
    let requests = requests.ok_or_else(|| format!("wrk says {report}"))?;
    println!("{report}");
    Ok(Load { requests, report })
}

/// A document of `mebibytes` whose every mebibyte begins with its number, so that nothing can be in the wrong
/// place unnoticed.
pub fn add_long_document(lab: &Lab, path: &'static str, mebibytes: usize) -> Result<Document> {
    let mut body = block(7).repeat(mebibytes);
    for (index, part) in body.chunks_exact_mut(1 << 20).enumerate() {
        (&mut part[..8]).write_all(&(index as u64).to_be_bytes())?;
    }
    lab.add_document(path.trim_start_matches('/'), &body)?;
    Ok(Document { path, body: Arc::new(body) })
}
