//! The slow server of a lab, under a load that does not wait for it.

use std::net::SocketAddr;
use std::time::Duration;

use switchback_experiments::OpenLoop;
use switchback_lab::{Host, Lab, Result, ServiceTime, SlowServerOptions};

const PATIENCE: Duration = Duration::from_secs(10);

fn get(from: &Host, server: SocketAddr, path: &str) -> Result<String> {
    from.run(["curl", "-sS", "--fail", "--max-time", "10", &format!("http://{server}{path}")])?.success()
}

/// What does not fit into the accept queue is dropped by the kernel, and comes again.
#[test]
fn a_slow_server_has_one_connection_at_work_and_a_queue() -> Result<()> {
    let lab = Lab::builder().up()?;
    let node = lab.node(0);
    let options = SlowServerOptions::new(1, 16, ServiceTime::Fixed(Duration::from_millis(4)));
    node.slow_server(&options)?;
    assert_eq!(get(lab.client(0), (node.ipv4(), 80).into(), "/any")?, "node0");
    assert_eq!(get(lab.client(0), (node.ipv6(), 80).into(), "/")?, "node0");
    let burst = |connections| {
        let load = OpenLoop { connections, rate: 20_000.0, poisson: None, path: "/", timeout: PATIENCE };
        load.run(lab.client(0), &[(node.ipv4(), 80).into()])
    };
    let fits = burst(16)?;
    assert_eq!((fits.times_ms.len(), fits.stalls()), (16, 0), "{fits:?}");
    assert!(fits.quantile_ms(1.0) > Some(15.0 * 4.0), "one after the other: {fits:?}");
    assert_eq!(node.tcp_counter("ListenOverflows")?, 0);
    let too_many = burst(48)?;
    assert!(node.tcp_counter("ListenOverflows")? > 0);
    assert_eq!(too_many.times_ms.len(), 48, "{too_many:?}");
    assert!(too_many.stalls() > 10, "{too_many:?}");
    lab.down()
}
