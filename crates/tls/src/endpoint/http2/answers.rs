//! Responses that this endpoint makes itself. A client of gRPC gets what gRPC calls Trailers-Only: status 200, and the error in
//! `grpc-status` and `grpc-message` of a response without a body.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The status of calls that may succeed at another time.
const UNAVAILABLE: u8 = 14;

/// Whether a request is a call of gRPC: `application/grpc`, or that with a format or a parameter behind it.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| rest.is_empty() || matches!(rest[0], b'+' | b';'))
}

/// An error, with a body that says so.
pub(super) fn error(status: StatusCode, is_head: bool) -> (Response<()>, Bytes) {
    let text = format!("{}\n", reason(status));
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, text.len().into());
    (response, if is_head { Bytes::new() } else { text.into() })
}

/// The same error for a client of gRPC, which has no body.
pub(super) fn grpc_error(status: StatusCode) -> Response<()> {
    let mut response = Response::new(());
    *response.headers_mut() = trailers(grpc_status(status), &reason(status));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// The trailer section of a call whose server is lost in the middle of its response.
pub(super) fn lost() -> HeaderMap {
    trailers(UNAVAILABLE, "the connection to the server is lost")
}

/// A redirect, without a body.
pub(super) fn redirection(status: u16, location: &str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::FOUND);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn trailers(status: u8, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS, u16::from(status).into());
    trailers.insert(GRPC_MESSAGE, HeaderValue::from_str(message).expect("words of ours are visible ASCII"));
    trailers
}

/// Such as `502 Bad Gateway`.
fn reason(status: StatusCode) -> String {
    format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or("Error"))
}

/// The status of gRPC for one of HTTP, by the table in gRPC's `http-grpc-status-mapping.md`.
fn grpc_status(status: StatusCode) -> u8 {
    match status.as_u16() {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_grpc_are_told_by_their_type() {
        let is = |value: &'static str| {
            is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]))
        };
        assert!(["application/grpc", "application/grpc+proto", "application/grpc;x=y"].into_iter().all(is));
        assert!(
            !["application/grpc-web", "application/grpc-web+proto", "text/plain", ""].into_iter().any(is)
        );
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn errors_of_grpc_are_trailers_only() {
        for (status, expected) in
            [(400, "13"), (403, "7"), (404, "12"), (413, "2"), (431, "2"), (502, "14"), (503, "14")]
        {
            let response = grpc_error(StatusCode::from_u16(status).unwrap());
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()[GRPC_STATUS], expected, "{status}");
            assert!(response.headers()[GRPC_MESSAGE].to_str().unwrap().starts_with(&format!("{status} ")));
            assert!(is_grpc(response.headers()) && !response.headers().contains_key(CONTENT_LENGTH));
        }
    }
}
