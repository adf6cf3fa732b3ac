//! Requests and responses with session cookies, as browsers and applications send them.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use switchback_lab::{Doing, Error, Lab, Result};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The application's cookie.
const COOKIE: &str = "LABSESSIONID";
/// Header fields beside `GET`, `Host` and those of wrk, without the cookies.
const FIELDS: [(&str, &str); 5] = [
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("Accept-Language", "en-US,en;q=0.5"),
    ("Referer", "http://shop.example.com/a/page/from/which/this/comes?with=a&query=too"),
    ("X-User", "17"),
];

/// The persistence of a pool's sessions, as lines of TOML for the pool. All are balanced by request, so that requests
/// take the same path through the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    /// No persistence.
    None,
    /// The application's cookie is rewritten in each response, and restored in each request.
    Rewrite,
    /// Our cookie is inserted into responses to requests that have none.
    Insert,
    /// By a header field.
    Hash,
}

impl Persistence {
    pub(super) fn pool(self) -> String {
        let lines = match self {
            Persistence::None => String::new(),
            Persistence::Rewrite => {
                format!("persistence = {{ mode = \"rewrite\", cookie = \"{COOKIE}\" }}\n")
            }
            Persistence::Insert => "persistence = { mode = \"insert\" }\n".to_owned(),
            Persistence::Hash => "persistence = { mode = \"hash\", hash = \"header x-user\" }\n".to_owned(),
        };
        format!("balance = \"request\"\n{lines}")
    }
}

/// A line for nginx: every response sets the application's cookie, the greatest work for a node.
pub(super) fn set_cookie() -> String {
    format!("add_header Set-Cookie \"{COOKIE}=0123456789abcdef0123456789abcdef; Path=/; HttpOnly\";")
}

/// The header fields of requests of some 500 bytes, with the session's cookie among several, as set by a first response
/// of the service on this port; with `forget` only the application's own.
pub(super) fn fields(lab: &Lab, port: u16, forget: bool) -> Result<Vec<String>> {
    let session = if forget { format!("{COOKIE}=0") } else { first_cookie(lab, port)? };
    let mut fields: Vec<String> = FIELDS.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    fields.push(format!("Cookie: consent=all; _ga=GA1.1.1234567890.1234567890; {session}; theme=dark"));
    Ok(fields)
}

/// The last cookie set by a response to a request without cookies: ours, if any.
fn first_cookie(lab: &Lab, port: u16) -> Result<String> {
    let vip = SocketAddr::from((lab.vip4(), port));
    let mut stream = lab.client(0).tcp_connect(vip, TIMEOUT)?;
    let asking = || format!("ask {vip} for a cookie");
    let mut answer = String::new();
    stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| write!(stream, "GET /small HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n"))
        .and_then(|()| stream.read_to_string(&mut answer).map(drop))
        .doing(asking)?;
    let cookies = answer.lines().filter_map(|line| line.strip_prefix("Set-Cookie: "));
    let cookies = cookies.filter_map(|cookie| cookie.split(';').next());
    let cookie = cookies.max_by_key(|cookie| cookie.starts_with("SB"));
    cookie.map(str::to_owned).ok_or_else(|| Error::Invalid(format!("{vip} sets no cookie: {answer}")))
}
