//! Packets for the connections of others, by somebody who knows their addresses and ports, but no number.

use switchback_wire::Seq;
use switchback_wire::packet::{bare, flags, segment};

use crate::common::Result;
use crate::common::packets::{Random, Raw, seed};
use crate::victims::Scene;

/// Packets of each kind for each victim.
const PACKETS: usize = 4;

/// Sends packets that are made of a victim's flow and two random numbers, in the victim's name; half of them from its
/// own host, so that it also gets the answers.
fn attack(scene: &mut Scene, make: impl Fn(&switchback_wire::sb_flow, (Seq, Seq)) -> Vec<u8>) -> Result {
    let seed = seed()?;
    println!("SWITCHBACK_SEED={seed}");
    let mut random = Random::new(seed);
    let hosts = [Raw::open(scene.cluster.lab.client(0))?, Raw::open(scene.cluster.lab.client(1))?];
    let victims = scene.look()?;
    for number in 0..PACKETS {
        for victim in &victims {
            let packet = make(&victim.flow(), (Seq(random.next()), Seq(random.next())));
            hosts[number % 2].send(victim.vip(), &packet)?;
        }
        scene.go_on()?;
    }
    Ok(())
}

/// RFC 5961 section 4: a SYN for a connection that exists ends nothing.
#[test]
fn blind_syns_end_no_connection() -> Result {
    let mut scene = Scene::start()?;
    attack(&mut scene, |flow, (seq, _)| bare(flow, true, seq, Seq(0), flags::SYN))?;
    scene.down()
}

/// RFC 5961 sections 3 and 5: the numbers have to be right.
#[test]
fn blind_resets_and_data_end_no_connection() -> Result {
    let mut scene = Scene::start()?;
    attack(&mut scene, |flow, (seq, _)| bare(flow, true, seq, Seq(0), flags::RST))?;
    attack(&mut scene, |flow, (seq, ack)| bare(flow, true, seq, ack, flags::FIN | flags::ACK))?;
    attack(&mut scene, |flow, (seq, ack)| bare(flow, true, seq, ack, flags::SYN | flags::ACK))?;
    let request = b"GET /img/small HTTP/1.1\r\nHost: shop.example.com\r\n\r\n";
    attack(&mut scene, |flow, numbers| segment(flow, true, numbers, flags::ACK | flags::PSH, None, request))?;
    scene.down()
}
