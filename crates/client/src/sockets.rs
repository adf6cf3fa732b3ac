//! Closing connections of this machine with sock_diag(7).

use std::io;
use std::net::IpAddr;

use nix::errno::Errno;
use nix::libc;
use switchback_runtime::netlink::{Request, Socket};
use switchback_runtime::{Doing, Error, Result};
use switchback_wire::sb_flow;

/// From linux/sock_diag.h; needs a kernel with CONFIG_INET_DIAG_DESTROY, as distributions have.
const SOCK_DESTROY: u16 = 21;
/// Matches any socket with the given addresses and ports.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Aborts the connections of these flows: their programs get ECONNABORTED, their servers a RST. Returns the number of
/// connections that existed.
pub(crate) fn destroy(flows: &[sb_flow]) -> Result<usize> {
    let doing = || "end the connections that need the tunnel";
    let mut socket = Socket::sock_diag().doing(doing)?;
    let mut ended = 0;
    for flow in flows {
        match socket.ask(Request::new(SOCK_DESTROY, &request(flow))) {
            Ok(_) => ended += 1,
            Err(error) if is_gone(&error) => {}
            Err(error) => {
                let error = Error::cannot(doing(), error);
                return Err(
                    error.remedy("end their programs: they would wait for what does not come any more")
                );
            }
        }
    }
    Ok(ended)
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::ENOENT as i32)
}

/// struct inet_diag_req_v2: family, protocol, extensions, padding, states, then the socket: ports, addresses,
/// interface, cookie.
fn request(flow: &sb_flow) -> Vec<u8> {
    let (client, vip) = (flow.client(), flow.vip());
    let family = if client.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut request = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&client.port().to_be_bytes());
    request.extend_from_slice(&vip.port().to_be_bytes());
    request.extend_from_slice(&words(client.ip()));
    request.extend_from_slice(&words(vip.ip()));
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(&NO_COOKIE);
    request
}

/// An IPv4 address in the first of four words.
fn words(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => {
            let mut words = [0; 16];
            words[..4].copy_from_slice(&v4.octets());
            words
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use switchback_wire::address_bytes;

    use super::*;

    #[test]
    fn the_program_gets_an_error_and_not_an_end_of_file() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(local).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (own, other) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            let flow = sb_flow {
                client: address_bytes(own.ip()),
                vip: address_bytes(other.ip()),
                client_port: own.port().to_be(),
                vip_port: other.port().to_be(),
            };
            assert_eq!(destroy(&[flow]).unwrap(), 1);
            let error = client.read(&mut [0]).expect_err("the connection has been ended");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
            drop(client);
            assert_eq!(destroy(&[flow]).unwrap(), 0, "it is gone");
        }
    }
}
