//! No request walks around the routes: whatever the one before it says of the connection, whatever is lost, a request
//! reaches only servers of the pool that it is routed to.

mod common;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::responses::Responses;
use common::{Cluster, Plan, Result};

const TIMEOUT: Duration = Duration::from_secs(5);

/// First requests, for the pool `web`.
const FORMS: [&str; 17] = [
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: upgrade, keep-alive\r\nUpgrade: websocket\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: Upgrade\r\nUpgrade: x/1\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
     HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: \r\n\r\n",
    "POST /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\nabc",
    "POST /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n\
     3\r\nabc\r\n0\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close, keep-alive\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
    "GET /small HTTP/1.0\r\nHost: a\r\n\r\n",
    "GET /small HTTP/1.0\r\n\r\n",
    "GET /small HTTP/1.0\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n",
];

fn plan() -> Plan {
    Plan { server_logs: true, ..Plan::default() }
}

fn connect(cluster: &Cluster) -> Result<(TcpStream, Responses)> {
    let stream = cluster.client().tcp_connect(SocketAddr::new(cluster.lab.vip4().into(), 80), TIMEOUT)?;
    let responses = Responses::new(&stream, TIMEOUT)?;
    Ok((stream, responses))
}

#[test]
fn what_follows_a_request_is_routed_whatever_that_one_says() -> Result {
    let cluster = Cluster::start_with(plan())?;
    for (number, first) in FORMS.iter().enumerate() {
        for together in [false, true] {
            let next = format!("GET /img/{number}-{together} HTTP/1.1\r\nHost: a\r\n\r\n");
            let (mut stream, mut responses) = connect(&cluster)?;
            let flight = if together { [*first, &next].concat() } else { (*first).to_owned() };
            stream.write_all(flight.as_bytes())?;
            let response = responses.next(false)?.ok_or_else(|| format!("no response to {first:?}"))?;
            assert!([200, 405].contains(&response.status), "{first:?}: {}", response.status);
            if !together {
                // The server may have closed.
                let _ = stream.write_all(next.as_bytes());
            }
            let _ = responses.next(false);
        }
    }
    let (web, img) = (cluster.server_log(0)?, cluster.server_log(1)?);
    assert!(!web.contains("/img/"), "{web}");
    assert!(img.contains("/img/0-false") && img.contains("/img/0-true"), "{img}");
    cluster.down()
}

#[test]
fn a_chunked_upload_goes_on_behind_a_restart_and_the_next_request_is_routed() -> Result {
    let mut cluster = Cluster::start_with(plan())?;
    let (mut stream, mut responses) = connect(&cluster)?;
    stream.write_all(b"POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nabc")?;
    assert_eq!(responses.next(false)?.ok_or("no response")?.status, 405);
    cluster.stop_switch()?;
    cluster.start_switch()?;
    stream.write_all(b"defgh\r\n3\r\nxyz\r\n0\r\n\r\nGET /img/behind HTTP/1.1\r\nHost: a\r\n\r\n")?;
    responses.next(false)?.ok_or("no response to the request behind the upload")?;
    assert!(!cluster.server_log(0)?.contains("/img/"));
    assert!(cluster.server_log(1)?.contains("/img/behind"));
    cluster.down()
}
