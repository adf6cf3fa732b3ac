//! A client that pipelines, splits and delays at random gets from two pools, byte for byte, what their servers say
//! when they are asked directly.

mod common;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::packets::Random;
use common::{Cluster, Plan, Result, load};
use switchback_lab::{Host, Impairment, ServerKind};

/// Connections, and requests of each. What goes wrong with one request of 4,000 is found with a probability of 95 % by the short
/// load, and with one of 16,000 by the long one.
fn scale() -> (usize, usize) {
    load((50, 240), (100, 500))
}
const AT_ONCE: usize = 50;
/// The most requests that a connection has without a whole response.
const AHEAD: u64 = 24;
/// On a bad path a retransmission may be lost, too, and doubles the client's retransmission time-out (RFC 6298), which
/// begins at seconds: data ahead of the responses is acknowledged when a node has it. Servers and switch wait as long.
const TIMEOUT: Duration = Duration::from_secs(180);

const LIMITS: &str = "head_timeout = \"3min\"";
/// nginx compresses what it is asked to, so that some responses are chunked; Caddy says what it was sent.
const NGINX: &str = "gzip on; gzip_types *; gzip_min_length 1; gzip_http_version 1.0;
    location /status/ { return 204; }
    client_header_timeout 180s; client_body_timeout 180s; lingering_timeout 180s; lingering_time 180s;";
const CADDY: &str = "@post method POST\nhandle @post {\nrespond \"{http.request.body}\"\n}";

struct Request {
    img: bool,
    bytes: Vec<u8>,
    head: bool,
}

fn request(random: &mut Random) -> Request {
    let img = random.below(2) == 1;
    let path = match (img, random.below(12)) {
        (_, 0) => "/none",
        (false, 1) => "/status/204",
        (false, 2) => "/1m",
        (true, 2) => "/img/1m",
        (false, _) => "/small",
        (true, _) => "/img/small",
    };
    let path = if img && path == "/none" { "/img/none" } else { path };
    let field = match random.below(8) {
        0 if path.ends_with("1m") => "Range: bytes=1000-2999\r\n",
        1 => "Accept-Encoding: gzip\r\n",
        2 => "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n",
        3 => "X-Padding: a value that makes the head longer than others are\r\n",
        _ => "",
    };
    // A mebibyte each time would be a test of patience.
    let path = if path.ends_with("1m") && field.is_empty() && random.below(8) > 0 { "/small" } else { path };
    let img = path.starts_with("/img/");
    let head = random.below(6) == 0;
    let method = if head { "HEAD" } else { "GET" };
    let most = if random.below(10) == 0 { 30_000 } else { 600 };
    let body_len = random.below(most) as usize;
    let body: Vec<u8> = (0..body_len).map(|_| b'a' + random.below(26) as u8).collect();
    let mut bytes = match random.below(6) {
        0 => format!("POST {path} HTTP/1.1\r\nHost: a\r\n{field}Content-Length: {body_len}\r\n\r\n"),
        1 => format!("POST {path} HTTP/1.1\r\nHost: a\r\n{field}Transfer-Encoding: chunked\r\n\r\n"),
        _ => {
            return Request {
                img,
                bytes: format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n").into_bytes(),
                head,
            };
        }
    }
    .into_bytes();
    if !bytes.ends_with(b"chunked\r\n\r\n") {
        bytes.extend(body);
        return Request { img, bytes, head: false };
    }
    let mut rest = &body[..];
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.len().min(random.below(3000) as usize + 1));
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
        rest = after;
    }
    let trailer = if random.below(4) == 0 { "X-Trailer: z\r\n" } else { "" };
    bytes.extend(format!("0\r\n{trailer}\r\n").bytes());
    Request { img, bytes, head: false }
}

/// Splits what a server sends into responses.
struct Responses {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Responses {
    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Responses { stream, bytes: Vec::new() })
    }

    fn fill(&mut self, len: usize) -> Result {
        let mut buffer = [0; 1 << 16];
        while self.bytes.len() < len {
            match self.stream.read(&mut buffer)? {
                0 => {
                    return Err(
                        format!("the connection ends after {} of {len} bytes", self.bytes.len()).into()
                    );
                }
                more => self.bytes.extend(&buffer[..more]),
            }
        }
        Ok(())
    }

    /// Where a text ends that begins at or after `from`.
    fn find(&mut self, text: &[u8], from: usize) -> Result<usize> {
        let mut at = from;
        loop {
            self.fill(at + text.len())?;
            match self.bytes[at..].windows(text.len()).position(|window| window == text) {
                Some(index) => return Ok(at + index + text.len()),
                None => at = self.bytes.len() + 1 - text.len(),
            }
        }
    }

    /// The next response to a request, byte for byte but for its date. Of a chunked body the content counts: where
    /// a server that compresses ends its chunks depends on how fast it can send.
    fn next(&mut self, head: bool) -> Result<Vec<u8>> {
        let head_end = self.find(b"\r\n\r\n", 0)?;
        let text = String::from_utf8_lossy(&self.bytes[..head_end]).to_ascii_lowercase();
        let status: u16 = text.get(9..12).and_then(|digits| digits.parse().ok()).ok_or("no status")?;
        let field = |name: &str| {
            let (_, value) = text.split_once(&format!("\r\n{name}: "))?;
            Some(value.split("\r\n").next()?.to_owned())
        };
        let mut response = self.bytes[..head_end].to_vec();
        if let Some(at) = text.find("\r\ndate: ") {
            response[at + 8..at + 8 + 29].fill(b'#');
        }
        let mut end = head_end;
        if head || status == 204 || status == 304 {
        } else if let Some(len) = field("content-length") {
            end += len.parse::<usize>()?;
            self.fill(end)?;
            response.extend(&self.bytes[head_end..end]);
        } else if field("transfer-encoding").as_deref() == Some("chunked") {
            loop {
                let start = self.find(b"\r\n", end)?;
                let size = std::str::from_utf8(&self.bytes[end..start - 2])?;
                let size = usize::from_str_radix(size, 16)?;
                end = start + size + 2;
                self.fill(end)?;
                response.extend(&self.bytes[start..start + size]);
                if size == 0 {
                    break;
                }
            }
        } else {
            return Err(format!("a response without an end: {text}").into());
        }
        self.bytes.drain(..end);
        Ok(response)
    }
}

/// What the servers say to the requests of one connection.
fn reference(cluster: &Cluster, requests: &[Request]) -> Result<Vec<Vec<u8>>> {
    let mut servers = Vec::new();
    for node in 0..2 {
        let address = SocketAddr::new(IpAddr::V4(cluster.lab.node(node).ipv4()), 80);
        servers.push(Responses::new(cluster.client().tcp_connect(address, TIMEOUT)?)?);
    }
    let ask = |request: &Request| {
        let server = &mut servers[usize::from(request.img)];
        server.stream.write_all(&request.bytes)?;
        server.next(request.head)
    };
    requests.iter().map(ask).collect()
}

/// Sends everything in pieces of random length, at random moments, not too far ahead of the responses.
fn send(
    mut stream: TcpStream,
    requests: &[Request],
    random: &mut Random,
    done: &(Mutex<u64>, Condvar),
) -> Result {
    let mut pieces: VecDeque<u8> = VecDeque::new();
    for (index, request) in requests.iter().enumerate() {
        let burst = random.below(AHEAD) + 1;
        let is_ahead = |answered: &u64| *answered + burst <= index as u64;
        let answered = done.0.lock().expect("nobody panics with it");
        if is_ahead(&answered) {
            drop(answered);
            // What is ahead must be on its way, or nothing would be answered.
            stream.write_all(pieces.make_contiguous())?;
            pieces.clear();
            let answered = done.0.lock().expect("nobody panics with it");
            let waited = done.1.wait_timeout_while(answered, TIMEOUT, |answered| is_ahead(answered));
            let (answered, waited) = waited.expect("nobody panics with it");
            if waited.timed_out() {
                return Err(format!("only {answered} responses to {index} requests").into());
            }
        }
        pieces.extend(&request.bytes);
        while !pieces.is_empty() && random.below(3) > 0 {
            let most = if random.below(4) == 0 { 3 } else { 2000 };
            let len = pieces.len().min(random.below(most) as usize + 1);
            let piece: Vec<u8> = pieces.drain(..len).collect();
            stream.write_all(&piece)?;
            if random.below(20) == 0 {
                thread::sleep(Duration::from_micros(random.below(4000)));
            }
        }
    }
    stream.write_all(pieces.make_contiguous())?;
    Ok(())
}

/// One connection with its requests.
fn converse(cluster: &Cluster, seed: u64, count: usize) -> Result {
    let mut random = Random::new(seed);
    let requests: Vec<Request> = (0..count).map(|_| request(&mut random)).collect();
    let expected = reference(cluster, &requests)?;
    let vip: IpAddr =
        if seed.is_multiple_of(2) { cluster.lab.vip4().into() } else { cluster.lab.vip6().into() };
    let stream = cluster.client().tcp_connect(SocketAddr::new(vip, 80), TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut responses = Responses::new(stream.try_clone()?)?;
    let done = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        let out = stream.try_clone()?;
        let sender = scope.spawn(|| send(out, &requests, &mut random, &done));
        let mut read = || -> Result {
            for (index, (request, expected)) in std::iter::zip(&requests, &expected).enumerate() {
                let name = String::from_utf8_lossy(&request.bytes[..request.bytes.len().min(60)]);
                let what = format!("request {index} {name:?}");
                let got = responses.next(request.head).map_err(|error| format!("{what}: {error}"))?;
                if &got != expected {
                    let at = std::iter::zip(&got, expected).take_while(|(got, wanted)| got == wanted).count();
                    let wrong = String::from_utf8_lossy(&got[..got.len().min(at + 100)]).into_owned();
                    return Err(format!("{what}: byte {at} of {} is wrong: {wrong}", expected.len()).into());
                }
                *done.0.lock().expect("nobody panics with it") += 1;
                done.1.notify_one();
            }
            Ok(())
        };
        let result = read();
        // A sender that waits for responses is not to wait for its time-out when there will be none.
        if result.is_err() {
            let _ = stream.shutdown(Shutdown::Both);
            *done.0.lock().expect("nobody panics with it") = u64::MAX >> 1;
            done.1.notify_one();
        }
        let sent = sender.join().expect("the sender does not panic");
        result.and(sent)
    })
}

/// `impaired`: hosts whose packets are lost, doubled and late.
fn random_requests((connections, each): (usize, usize), impaired: impl Fn(&Cluster) -> Vec<&Host>) -> Result {
    let requests = connections * each;
    let cluster = Cluster::start_with(Plan {
        servers: vec![ServerKind::Nginx, ServerKind::Caddy],
        node_extra: vec![(0, NGINX), (1, CADDY)],
        limits: LIMITS,
        ..Plan::default()
    })?;
    let seed = common::packets::seed()?;
    let impairment = Impairment {
        loss_permille: 20,
        duplicate_permille: 20,
        reorder_permille: 20,
        hold: Duration::from_millis(2),
        seed,
    };
    let impaired = impaired(&cluster).into_iter().map(|host| host.impair(impairment));
    let impaired: Vec<_> = impaired.collect::<std::result::Result<_, _>>()?;
    let begun = Instant::now();
    let next = Mutex::new(0..connections as u64);
    let failed: Vec<String> = thread::scope(|scope| {
        let work = || {
            let take = || next.lock().expect("nobody panics with it").next();
            while let Some(index) = take() {
                let seed = seed.wrapping_add(index);
                if let Err(error) = converse(&cluster, seed, each) {
                    return Some(format!("SWITCHBACK_SEED={seed}: {error}"));
                }
            }
            None
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().expect("no worker panics")).collect()
    });
    println!("{:?} for {requests} requests", begun.elapsed());
    for impaired in impaired {
        for traffic in [impaired.from_host(), impaired.to_host()] {
            println!("{traffic:?}");
            assert!(traffic.lost > 100 && traffic.duplicated > 100 && traffic.reordered > 50, "{traffic:?}");
        }
        impaired.heal()?;
    }
    let status = cluster.switch_status()?;
    let nodes = [cluster.node_status(0)?, cluster.node_status(1)?].map(|node| node["counters"].clone());
    assert!(failed.is_empty(), "{failed:#?}\nswitch {status:#}\nnodes {nodes:#?}");
    let released: u64 = (0..2).filter_map(|node| status["nodes"][node]["released"].as_u64()).sum();
    assert!(released > requests as u64 / 10, "the pools change: {status:#}");
    assert_eq!(status["dispatch"]["answered"], serde_json::json!({}), "{status:#}");
    for node in &nodes {
        assert_eq!(node["lost_track"], 0, "{node:#}");
    }
    cluster.down()
}

#[test]
fn random_requests_on_a_good_path() -> Result {
    random_requests(scale(), |_| Vec::new())
}

#[test]
fn random_requests_on_a_bad_path() -> Result {
    random_requests(scale(), |cluster| vec![cluster.client()])
}

/// Handoffs and what nodes say of them are lost, too.
#[test]
fn random_requests_with_bad_paths_behind_the_switch() -> Result {
    random_requests(load((50, 200), (20, 500)), |cluster| cluster.lab.nodes().collect())
}
