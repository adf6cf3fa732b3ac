//! Session cookies: names rewritten on the way to the client and restored on the way to the server, and cookies
//! inserted into the server's data.

mod inserted;
mod requests;
mod responses;
mod served;

use switchback_wire::session::{Code, rewritten};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;

/// The rewritten name of the server's cookie.
fn as_sent(node: Code) -> Vec<u8> {
    [&rewritten(REWRITTEN, node)[..], &NAME[SB_CODE_LEN as usize..]].concat()
}

/// A byte stream with the positions of the names to change.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    names: Vec<usize>,
}

impl Stream {
    fn say(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends a name to change.
    fn name(&mut self, name: &[u8]) {
        self.names.push(self.bytes.len());
        self.bytes.extend_from_slice(name);
    }

    /// The bytes with the first `most` names changed to `code`.
    fn changed(&self, code: &[u8], most: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for at in self.names.iter().take(most) {
            bytes[*at..at + SB_CODE_LEN as usize].copy_from_slice(&code[..SB_CODE_LEN as usize]);
        }
        bytes
    }
}

/// A response with cookies in its head, and look-alikes elsewhere.
fn add_response(random: &mut Random, stream: &mut Stream, name: &[u8]) {
    if random.one_in(6) {
        stream.say("HTTP/1.1 103 Early Hints\r\nSet-Cookie: LONGNAMESI=1\r\n\r\n");
    }
    stream.say(random.pick(&[
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 404\r\n",
        "HTTP/1.0 200 Set-Cookie: LONGNAMESID=1\r\n",
    ]));
    for _ in 0..random.below(5) {
        let field = random.pick(&["Set-Cookie:", "set-cookie: ", "SET-COOKIE: \t", "Set-Cookie: "]);
        match random.below(4) {
            0 => stream.say(random.pick(&[
                "Server: LONGNAMESID=1\r\n",
                "X-Set-Cookie: LONGNAMESID=1\r\n",
                "Set-Cookie2: LONGNAMESID=1\r\n",
            ])),
            1 => {
                stream.say(field);
                stream.say(random.pick(&[
                    "LONGNAMESI=1",
                    "LONGNAMESIDX=1",
                    "LONGNAMESID",
                    "LONGNAMESID =1",
                    "longnamesid=1",
                    "LLONGNAMESID=1",
                    "a=LONGNAMESID=1; LONGNAMESID=2",
                    "\"LONGNAMESID=1\"",
                    "",
                    " \t ",
                    "LONG; LONGNAMESID=1",
                ]));
                stream.say("\r\n");
            }
            _ => {
                stream.say(field);
                stream.name(name);
                stream.say(random.pick(&["=1; Path=/\r\n", "=\r\n", "=LONGNAMESID=; LONGNAMESID=1\r\n"]));
            }
        }
    }
    let text = random.pick(&[
        "",
        "x",
        "\r\nSet-Cookie: LONGNAMESID=1\r\n",
        "HTTP/1.1 200 OK\r\nSet-Cookie: LONGNAMESID=1\r\n\r\n",
    ]);
    if random.one_in(2) {
        stream.say(&format!("Content-Length: {}\r\n\r\n{text}", text.len()));
        return;
    }
    stream.say("Transfer-Encoding: chunked\r\n\r\n");
    if !text.is_empty() {
        stream.say(&format!("{:x};LONGNAMESID=1\r\n{text}\r\n", text.len()));
    }
    stream.say(random.pick(&["0\r\n\r\n", "0\r\nSet-Cookie: LONGNAMESID=1\r\n\r\n"]));
}
