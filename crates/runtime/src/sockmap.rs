//! What this kernel does with sockets in a sockmap.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use nix::libc::{self, c_int};

nix::ioctl_read_bad!(fionread, libc::FIONREAD, c_int);

/// Whether FIONREAD answers 0 for a socket that is in a sockmap without a verdict program, whatever it has received:
/// kernels with commit 929e30f93125 ("bpf, sockmap: Fix FIONREAD for sockmap") count only what programs have queued.
pub fn hides_unread() -> io::Result<bool> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let (key, value) = (size_of::<u32>() as u32, size_of::<u32>() as u32);
    let map = MapHandle::create(MapType::Sockmap, Some("switchback_try"), key, value, 1, &options);
    let map = map.map_err(io::Error::other)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut peer = TcpStream::connect(listener.local_addr()?)?;
    let (socket, _) = listener.accept()?;
    let entry = (socket.as_raw_fd() as u32).to_ne_bytes();
    map.update(&0u32.to_ne_bytes(), &entry, MapFlags::ANY).map_err(io::Error::other)?;
    peer.write_all(&[0])?;
    socket.peek(&mut [0])?;
    let mut unread: c_int = 0;
    // SAFETY: FIONREAD writes one int.
    unsafe { fionread(socket.as_raw_fd(), &raw mut unread) }?;
    Ok(unread == 0)
}
