//! Checks of servers that speak HTTP/2 without TLS, with prior knowledge (RFC 9113 section 3.3), and of gRPC servers.
//!
//! The protocol of the latter is `grpc.health.v1`: a call of one message, answered by one. Both have at most one field, so no
//! library for their encoding is worth its code.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, Request, Response, Uri};
use tokio::net::TcpStream;

use super::late;

/// Longest answer to a call: that of the protocol has seven bytes.
const ANSWER_MAX: usize = 1 << 10;
/// Bytes before each message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// `HealthCheckResponse` with the status `SERVING`.
const SERVING: [u8; 2] = [FIELD_1_NUMBER, 1];
/// Tags of the first field of a message (protobuf encoding).
const FIELD_1_NUMBER: u8 = 0x08;
const FIELD_1_TEXT: u8 = 0x0a;
/// Names of `HealthCheckResponse.ServingStatus`.
const STATES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// Status of the answer to a GET request.
pub(super) fn get(
    address: SocketAddr,
    path: &str,
    host: Option<&str>,
    timeout: Duration,
) -> Result<u16, String> {
    within(timeout, async {
        let authority = host.map_or_else(|| address.to_string(), str::to_owned);
        let request = request("GET", authority, path).body(()).map_err(words)?;
        let response = ask(address, request, None).await?;
        Ok(response.status().as_u16())
    })
}

/// Whether a gRPC server calls a service `SERVING`.
pub(super) fn is_serving(address: SocketAddr, service: &str, timeout: Duration) -> Result<(), String> {
    within(timeout, async {
        let request = request("POST", address.to_string(), "/grpc.health.v1.Health/Check")
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(())
            .map_err(words)?;
        let response = ask(address, request, Some(message(service))).await?;
        if response.status() != 200 {
            return Err(format!("the answer has status {}", response.status().as_u16()));
        }
        let (head, mut body) = response.into_parts();
        if let Some(status) = head.headers.get("grpc-status") {
            return Err(failed(status.as_bytes()));
        }
        let mut answer = BytesMut::new();
        while let Some(data) = body.data().await {
            answer.extend_from_slice(&data.map_err(words)?);
            if answer.len() > ANSWER_MAX {
                return Err("the answer is none of grpc.health.v1".to_owned());
            }
        }
        let trailers: HeaderMap = body.trailers().await.map_err(words)?.unwrap_or_default();
        match trailers.get("grpc-status").map(|status| status.as_bytes()) {
            Some(b"0") => verdict(answer.get(PREFIX..).unwrap_or_default()),
            Some(status) => Err(failed(status)),
            None => Err("the answer has no grpc-status".to_owned()),
        }
    })
}

fn within<T>(timeout: Duration, check: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let outcome = runtime.map_err(words)?.block_on(async { tokio::time::timeout(timeout, check).await });
    outcome.unwrap_or_else(|_| Err(late(timeout)))
}

fn request(method: &str, authority: String, path: &str) -> http::request::Builder {
    let uri = Uri::builder().scheme("http").authority(authority).path_and_query(path).build();
    let request = Request::builder().method(method).version(http::Version::HTTP_2);
    request.uri(uri.unwrap_or_default()).header(USER_AGENT, super::USER_AGENT)
}

/// The head of the answer to a request, over a connection of its own.
async fn ask(
    address: SocketAddr,
    request: Request<()>,
    body: Option<Bytes>,
) -> Result<Response<RecvStream>, String> {
    let stream = TcpStream::connect(address).await.map_err(words)?;
    let (mut sender, connection) = h2::client::handshake(stream).await.map_err(words)?;
    // It ends with the runtime.
    tokio::spawn(connection);
    let (response, mut stream) = sender.send_request(request, body.is_none()).map_err(words)?;
    if let Some(body) = body {
        stream.send_data(body, true).map_err(words)?;
    }
    response.await.map_err(words)
}

/// `HealthCheckRequest` for a service, as gRPC sends it.
fn message(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(FIELD_1_TEXT);
        // A length of up to 14 bits (protobuf encoding, "base 128 varints").
        match service.len() {
            len @ 0..128 => message.push(len as u8),
            len => message.extend([len as u8 | 0x80, (len >> 7) as u8]),
        }
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(message);
    framed.into()
}

/// What an answer says of the service.
fn verdict(message: &[u8]) -> Result<(), String> {
    match message {
        message if message == SERVING => Ok(()),
        // A field with the value 0 is left out.
        [] => Err(format!("the service is {}", STATES[0])),
        [FIELD_1_NUMBER, state] if usize::from(*state) < STATES.len() => {
            Err(format!("the service is {}", STATES[usize::from(*state)]))
        }
        _ => Err("the answer is none of grpc.health.v1".to_owned()),
    }
}

fn failed(status: &[u8]) -> String {
    format!("the call failed with grpc-status {}", String::from_utf8_lossy(status))
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Result of `check`, and the request that a server got which answers with this status, body and trailer section.
    fn answered<T>(
        check: impl FnOnce(SocketAddr) -> T + Send,
        (status, body, trailers): (u16, &'static [u8], &[(&'static str, &'static str)]),
    ) -> (T, Request<Vec<u8>>)
    where
        T: Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let serve = async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let mut connection = h2::server::handshake(listener.accept().await.unwrap().0).await.unwrap();
            let (request, mut respond) = connection.accept().await.unwrap().unwrap();
            let (head, mut stream) = request.into_parts();
            let trailers: HeaderMap = trailers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            let answer = async {
                let mut sent = Vec::new();
                while let Some(data) = stream.data().await {
                    sent.extend_from_slice(&data.unwrap());
                }
                let mut response = Response::builder().status(status).body(()).unwrap();
                if body.is_empty() {
                    *response.headers_mut() = trailers;
                    respond.send_response(response, true).unwrap();
                } else {
                    let mut out = respond.send_response(response, false).unwrap();
                    out.send_data(body.into(), false).unwrap();
                    out.send_trailers(trailers).unwrap();
                }
                sent
            };
            let (sent, _) = tokio::join!(answer, async { while connection.accept().await.is_some() {} });
            Request::from_parts(head, sent)
        };
        std::thread::scope(|scope| {
            let checking = scope.spawn(move || check(address));
            let request = within(PATIENCE, async { Ok(serve.await) }).unwrap();
            (checking.join().unwrap(), request)
        })
    }

    #[test]
    fn a_page_has_a_status() {
        for (host, authority) in [(Some("www.example.com"), "www.example.com"), (None, "127.0.0.1")] {
            let get = |address| get(address, "/health?full=1", host, PATIENCE);
            let (outcome, request) = answered(get, (404, b"no", &[]));
            assert_eq!(outcome, Ok(404));
            assert_eq!((request.method().as_str(), request.uri().host()), ("GET", Some(authority)));
            assert_eq!(request.uri().path_and_query().unwrap(), "/health?full=1");
            assert_eq!(request.headers()[USER_AGENT], "switchback-health");
        }
    }

    #[test]
    fn a_service_is_serving_or_not() {
        let long = "a".repeat(200);
        let ask = |service: &str, answer| answered(|address| is_serving(address, service, PATIENCE), answer);
        let serving = (200, &b"\0\0\0\0\x02\x08\x01"[..], &[("grpc-status", "0")][..]);
        let (outcome, request) = ask("a.B", serving);
        assert_eq!(outcome, Ok(()));
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        assert_eq!(
            (&request.headers()[CONTENT_TYPE], &request.headers()[TE]),
            (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
        );
        assert_eq!(request.body(), b"\0\0\0\0\x05\x0a\x03a.B");
        assert_eq!(ask("", serving).1.body(), b"\0\0\0\0\0");
        let expected = [b"\0\0\0\0\xcb\x0a\xc8\x01", long.as_bytes()].concat();
        assert_eq!(*ask(&long, serving).1.body(), expected);

        let rows: [(_, &[u8], &[_], &str); 6] = [
            (200, b"\0\0\0\0\x02\x08\x02", &[("grpc-status", "0")], "the service is NOT_SERVING"),
            (200, b"\0\0\0\0\0", &[("grpc-status", "0")], "the service is UNKNOWN"),
            (200, b"\0\0\0\0\x02\x10\x01", &[("grpc-status", "0")], "the answer is none of grpc.health.v1"),
            (200, b"\0\0\0\0\x02\x08\x01", &[], "the answer has no grpc-status"),
            (200, b"", &[("grpc-status", "12")], "the call failed with grpc-status 12"),
            (503, b"", &[], "the answer has status 503"),
        ];
        for (status, body, trailers, expected) in rows {
            assert_eq!(ask("a", (status, body, trailers)).0, Err(expected.to_owned()));
        }
    }

    #[test]
    fn a_server_that_does_not_answer_is_late() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let timeout = Duration::from_millis(50);
        assert_eq!(is_serving(address, "", timeout), Err("no answer within 50 ms".to_owned()));
        drop(listener);
        assert!(get(address, "/", None, PATIENCE).unwrap_err().contains("refused"));
    }
}
