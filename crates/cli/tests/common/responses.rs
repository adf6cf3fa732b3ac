//! Reading responses off a connection, one by one, whatever they are.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use switchback_lab::Host;

use super::{Cluster, Result};

/// One response.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    /// Status line and fields, as they came.
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    /// The value of the first field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By FIN.
    Closed,
    /// By RST.
    Reset,
}

/// A client's connection, for one request after the other. Each wait for bytes is bounded by `timeout`.
pub struct Connection {
    pub stream: TcpStream,
    pub responses: Responses,
}

impl Connection {
    /// A new one, to the IPv4 VIP.
    pub fn open(cluster: &Cluster, client: &Host, timeout: Duration) -> Result<Connection> {
        let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
        Connection::on(client.tcp_connect(vip, timeout)?, timeout)
    }

    /// One that there is.
    pub fn on(stream: TcpStream, timeout: Duration) -> Result<Connection> {
        Ok(Connection { responses: Responses::new(&stream, timeout)?, stream })
    }
}

/// Splits what comes on a connection into responses.
pub struct Responses {
    stream: TcpStream,
    bytes: Vec<u8>,
    end: Option<End>,
}

impl Responses {
    /// Each read may take as long as `timeout`.
    pub fn new(stream: &TcpStream, timeout: Duration) -> Result<Responses> {
        let stream = stream.try_clone()?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Responses { stream, bytes: Vec::new(), end: None })
    }

    /// Uploads so many bytes to nginx, which takes them, and answers that it takes none.
    pub fn upload(&mut self, len: usize) -> Result {
        write!(self.stream, "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n")?;
        self.stream.write_all(&vec![b'x'; len])?;
        let response = self.next(false)?.ok_or("the connection has ended")?;
        assert_eq!(response.status, 405, "nginx takes no uploads");
        Ok(())
    }

    /// False when the connection has ended.
    fn more(&mut self) -> Result<bool> {
        let mut buffer = [0; 1 << 14];
        if self.end.is_none() {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.end = Some(End::Closed),
                Ok(len) => self.bytes.extend(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => self.end = Some(End::Reset),
                Err(error) => return Err(format!("after {:?}: {error}", self.shown()).into()),
            }
        }
        Ok(self.end.is_none())
    }

    fn fill(&mut self, len: usize) -> Result {
        while self.bytes.len() < len {
            if !self.more()? {
                let (end, shown) = (self.end, self.shown());
                return Err(format!("{end:?} after {} of {len} bytes: {shown:?}", self.bytes.len()).into());
            }
        }
        Ok(())
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(300)]).into_owned()
    }

    /// Where the text ends that is looked for from `from` on.
    fn find(&mut self, text: &[u8], from: usize) -> Result<usize> {
        loop {
            let found =
                self.bytes.get(from..).and_then(|rest| rest.windows(text.len()).position(|w| w == text));
            match found {
                Some(at) => return Ok(from + at + text.len()),
                None => self.fill(self.bytes.len() + 1)?,
            }
        }
    }

    /// The next response, interim ones left out; `head` if it is one to HEAD. None if the connection ends
    /// first.
    pub fn next(&mut self, head: bool) -> Result<Option<Response>> {
        loop {
            if self.bytes.is_empty() && !self.more()? {
                return Ok(None);
            }
            let response = self.one(head)?;
            if response.status >= 200 || response.status == 101 {
                return Ok(Some(response));
            }
        }
    }

    fn one(&mut self, is_head: bool) -> Result<Response> {
        let head_end = self.find(b"\r\n\r\n", 0)?;
        let head = String::from_utf8_lossy(&self.bytes[..head_end]).into_owned();
        let status: u16 = match head.split(' ').nth(1).map(str::parse) {
            Some(Ok(status)) if head.starts_with("HTTP/1.") => status,
            _ => return Err(format!("no response: {:?}", self.shown()).into()),
        };
        let mut body = Vec::new();
        let mut end = head_end;
        if is_head || status < 200 || status == 204 || status == 304 {
        } else if field(&head, "transfer-encoding") == Some("chunked") {
            loop {
                let start = self.find(b"\r\n", end)?;
                let size = usize::from_str_radix(std::str::from_utf8(&self.bytes[end..start - 2])?, 16)?;
                end = start + size + 2;
                self.fill(end)?;
                body.extend(&self.bytes[start..start + size]);
                if size == 0 {
                    break;
                }
            }
        } else if let Some(len) = field(&head, "content-length") {
            end += len.parse::<usize>()?;
            self.fill(end)?;
            body.extend(&self.bytes[head_end..end]);
        } else {
            while self.more()? {}
            end = self.bytes.len();
            body.extend(&self.bytes[head_end..]);
        }
        self.bytes.drain(..end);
        Ok(Response { status, head, body })
    }

    /// All that comes after the last response, and how the connection ends.
    pub fn rest(&mut self) -> Result<(Vec<u8>, End)> {
        while self.more()? {}
        Ok((std::mem::take(&mut self.bytes), self.end.expect("it has ended")))
    }
}
