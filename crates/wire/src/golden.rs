//! Golden bytes. Other versions see the formats on the wire, and the programs in maps, so a change of any byte must be
//! deliberate.

use crate::flow_state::{FlowState, Handshake};
use crate::handoff::{Peers, Way, encode, tag};
use crate::packet::{TcpView, bare, flags};
use crate::*;
use std::net::IpAddr;
use switchback_http::framing::Framing;

fn flow(v6: bool) -> sb_flow {
    let (client, vip) = if v6 { ("2001:db8::1", "2001:db8::100") } else { ("198.51.100.1", "192.0.2.100") };
    sb_flow {
        client: address_bytes(client.parse().unwrap()),
        vip: address_bytes(vip.parse().unwrap()),
        client_port: 40000u16.to_be(),
        vip_port: 80u16.to_be(),
    }
}

fn option(op: sb_op) -> sb_option {
    let options = (SB_SYN_WSCALE | SB_SYN_SACK | SB_SYN_TSTAMP) as u8;
    let state = FlowState {
        handshake: Handshake { mss: 1460, options, wscale: 0x97 },
        session: sb_session::new(*b"abc", Some(*b"xyz")),
        ..FlowState::at(Seq(0x0102_0304), Seq(0x0a0b_0c0d))
    };
    state.option(op)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn packet(outer_v6: bool, inner_v6: bool, number: u16, op: sb_op) -> String {
    let flow = flow(inner_v6);
    let inner = bare(&flow, true, Seq(0x1122_3344), Seq(0x5566_7788), flags::ACK);
    let view = TcpView::parse(&inner).unwrap();
    let (source, node) =
        if outer_v6 { ("2001:db8::10", "2001:db8::21") } else { ("192.0.2.10", "192.0.2.21") };
    let node = NodeAddress { machine: node.parse().unwrap(), number };
    let peers = Peers { node, switch: source.parse().unwrap(), epoch: 0x0102_0304_0506_0708 };
    let mut out = Vec::new();
    let key = keys::handoff_key(&[0x42; 32]);
    encode(&mut out, &key, &Way::to_node(peers), &flow, option(op), &view, &inner);
    hex(&out)
}

#[test]
fn an_adoption_of_an_ipv4_flow_over_ipv4() {
    let golden = [
        "45000084000040004011b649c000020ac0000215", // outer IPv4: 132 bytes, DF, TTL 64, UDP
        "facc17c100700000",                         // UDP to port 6081, no checksum
        "0e40080000000800", // Geneve: 14 words of options, critical, inner IPv4, end of the epoch
        "ff5b810d",         // option class, type with the critical bit, 13 words
        "01010000",         // version 1, ADOPT, no flags, no reason
        "010203040a0b0c0d", // origin, next
        "0000000000000000", // left, heads
        "0000000005b40797", // requests, framing, MSS 1460; wscale, SACK, timestamps; scales 9 and 7
        "61626378797a0000", // session: pool abc, node xyz
        "0000000000000000", // generation, boundary, queue share, reserved
        "3bc9b5b08510d2c5", // tag
        "450000280000400040064e37c6336401c0000264", // the client's packet
        "9c40005011223344556677885010ffff15560000",
    ];
    assert_eq!(packet(false, false, 0, sb_op::SB_OP_ADOPT), golden.concat());
}

#[test]
fn a_forward_of_an_ipv6_flow_over_ipv6() {
    let golden = [
        "600000000084114020010db800000000000000000000001020010db8000000000000000000000021",
        "c03017c100840000",
        "0e4086dd00000800",
        "ff5b810d",
        "01020000010203040a0b0c0d0000000000000000",
        "0000000005b40797",
        "61626378797a0000",
        "0000000000000000",
        "630e6e78d74c1f5c",
        "600000000014064020010db800000000000000000000000120010db8000000000000000000000100",
        "9c40005011223344556677885010ffffa57c0000",
    ];
    assert_eq!(packet(true, true, 0, sb_op::SB_OP_FORWARD), golden.concat());
}

#[test]
fn the_number_of_a_node_is_in_the_vni_and_under_the_tag() {
    let [numbered, plain] = [0x1234, 0].map(|number| packet(false, false, number, sb_op::SB_OP_ADOPT));
    let (vni, tag) = (2 * 32..2 * 36, 2 * 84..2 * 92);
    assert_eq!((&numbered[vni.clone()], &plain[vni.clone()]), ("12340800", "00000800"));
    assert_ne!(numbered[tag.clone()], plain[tag.clone()]);
    let rest =
        |packet: &str| [&packet[..vni.start], &packet[vni.end..tag.start], &packet[tag.end..]].concat();
    assert_eq!(rest(&numbered), rest(&plain));
}

#[test]
fn flags_of_one_operation_are_different_bits() {
    let handover =
        [SB_HANDOVER_REQUEST, SB_HANDOVER_READ, SB_HANDOVER_LAST, SB_HANDOVER_AGAIN, SB_HANDOVER_AHEAD];
    assert_eq!(handover, [0x01, 0x02, 0x04, 0x08, 0x10]);
    assert_eq!([SB_RELEASE_ABORT, SB_HELLO_FACTS, SB_DIRECT_ASK], [0x01; 3]);
    assert_eq!([SB_SYN_WSCALE, SB_SYN_SACK, SB_SYN_TSTAMP, SB_SYN_ECN], [0x01, 0x02, 0x04, 0x08]);
}

#[test]
fn subkeys() {
    let (handoff, cookie) = (keys::handoff_key(&[0x42; 32]), keys::cookie_key(&[0x42; 32], 7));
    assert_eq!((handoff.k0, handoff.k1), (10_073_482_354_175_239_313, 8_654_608_291_962_919_434));
    assert_eq!((cookie.k0, cookie.k1), (16_729_728_489_537_767_525, 9_684_775_225_124_154_233));
}

#[test]
fn an_introduction_over_ipv4_is_an_option_list_of_40_bytes() {
    let key = keys::client_key(&keys::client_master_key(&[0x42; 32]), flow(false).client);
    assert_eq!((key.k0, key.k1), (12_551_500_407_058_116_062, 13_031_664_633_878_775_337));
    let node = "192.0.2.21".parse().unwrap();
    let packet = client::introduction(
        &key,
        node,
        &flow(false),
        (Seq(0x5566_7788), Seq(0x1122_3344)),
        Seq(0x1122_4444),
        (0xffff, 9),
    );
    let golden = [
        "450000500000400040064e0fc0000264c6336401", // from the VIP to the client: 80 bytes, DF, TTL 64, TCP
        "00509c405566778811223344f010ffffe4240000", // ACK without data, 10 words of options
        "fd285bc1",                                 // experiment, 40 bytes, ours
        "00000000000000000000ffffc0000215",         // node
        "11224444",                                 // next
        "55bdcfa1005f2b6e",                         // tag
        "c63364019c400900",                         // the client as the node sees it, its window scale 9
    ];
    assert_eq!(hex(&packet), golden.concat());
}

#[test]
fn formats_have_no_padding() {
    assert_eq!(size_of::<sb_flow>(), 16 + 16 + 2 + 2);
    assert_eq!(size_of::<sb_option>(), 4 + 4 + 40 + 8);
    assert_eq!(size_of::<sb_flow_state>(), 4 * 4 + 3 * 2 + 2 + 8 + 4);
    assert_eq!(size_of::<sb_handover>(), size_of::<sb_flow_state>() + 2 + 2);
    assert_eq!(size_of::<sb_outcome>(), size_of::<sb_flow_state>() + 2 * 2);
    assert_eq!(size_of::<sb_confirmed>(), size_of::<sb_flow_state>() + 4);
    assert_eq!(size_of::<sb_question>(), size_of::<sb_flow_state>() + 4);
    assert_eq!(size_of::<sb_move>(), size_of::<sb_flow_state>() + 4);
    assert_eq!(size_of::<sb_kept>(), size_of::<sb_flow_state>() + 4);
    assert_eq!(size_of::<sb_numbered>(), 4 + 4);
    assert_eq!(size_of::<sb_hello>(), 2 * size_of::<sb_numbered>() + 1 + 3 + 4 + size_of::<sb_switch_self>());
    assert_eq!(size_of::<sb_switch_self>(), 1 + 3 + 4 + 4 + 1 + 3);
    assert_eq!(size_of::<sb_sync>(), 8 + 2 * 4);
    assert_eq!(size_of::<sb_report>(), 4 + 2 * 2 + 2 * 2 + 3 * 4 + 1 + 3 + 4);
    assert_eq!(size_of::<sb_size>(), 4 + 2 + 2);
    assert_eq!(size_of::<sb_direct>(), 4 + 2 + 2);
    assert_eq!(size_of::<sb_geneve>(), 8);
    assert_eq!(size_of::<sb_shim>(), 8 + 8 + 56);
    assert_eq!(size_of::<sb_tag_input>(), 2 * 16 + 8 + 36 + 4 + 4 + 44);
    assert_eq!(size_of::<sb_endpoint>(), 16 + 2 + 2);
    assert_eq!(size_of::<sb_vip>(), 4 + 4 + 4 * 2 + 4 + 2 + 2);
    assert_eq!(size_of::<sb_switch_settings>(), 4 * 16 + 8 + 8 * 4);
    assert_eq!(size_of::<sb_choices>(), 8 + 8 + 2 + 2 + 4 + SB_CHOICES as usize * 2);
    assert_eq!(size_of::<Framing>(), 8 + 8 + 2 + 2 + 1 + 3);
    assert_eq!(size_of::<sb_flow_entry>(), 3 * 4 + 2 + 4 + 2 + 4 + size_of::<Framing>() + 8 + 4 + 4 + 4 + 4);
    assert_eq!(size_of::<sb_session>(), 3 + 3 + 2);
    assert_eq!(size_of::<sb_persistence>(), 1 + 1 + 2 + 8 + 32 + 256);
    assert_eq!(size_of::<sb_cookies>(), 8 + 4 + 4 + size_of::<Framing>() + 2 * (4 * 4 + 4 + 4));
    assert_eq!(size_of::<sb_node_address>(), 16 + 2 + 2);
    assert_eq!(size_of::<sb_node>(), size_of::<sb_node_address>() + 16 + 4 + 6 + 6 + 6 * 2 + 8);
    assert_eq!(
        size_of::<sb_record>(),
        4 + 36 + size_of::<sb_flow_entry>() + 56 + size_of::<sb_node_address>() + 4
    );
    let owned = 16
        + 5 * 4
        + 2 * 2
        + size_of::<Framing>()
        + 256 / 8
        + 3 * 2
        + 6
        + 7 * 4
        + 2 * 2
        + 2 * 4
        + 4
        + 2 * 8
        + 4 * 4
        + 2 * 2
        + size_of::<sb_masquerade>()
        + size_of::<sb_away>()
        + size_of::<sb_ended>()
        + size_of::<sb_cookies>();
    assert_eq!(size_of::<sb_masquerade>(), 2 * 4 + 4);
    assert_eq!(size_of::<sb_away>(), size_of::<sb_endpoint>() + 6 * 4 + 4);
    assert_eq!(size_of::<sb_server>(), size_of::<sb_endpoint>() + 4);
    assert_eq!(size_of::<sb_ended>(), 2 * 8 + 3 * 4 + 2 * 2);
    assert_eq!(size_of::<sb_owned>(), owned);
    assert_eq!(size_of::<sb_second>(), 2 + 1 + 1 + 16 + 8);
    assert_eq!(size_of::<sb_node_settings>(), 16 + 16 + 16 + 2 * 8 + 6 * 4 + 8);
    assert_eq!(size_of::<sb_node_here>(), 4);
    assert_eq!(size_of::<sb_listener>(), size_of::<sb_endpoint>() + 2 + 2);
    assert_eq!(size_of::<sb_judged>(), 4);
    assert_eq!(size_of::<sb_judgment>(), size_of::<sb_listener>() + 2 + 2);
    assert_eq!(size_of::<sb_asking>(), 16 + 4 + 4);
    assert_eq!(size_of::<sb_pool_here>(), 4 + 2 + 2);
    assert_eq!(size_of::<sb_load>(), 7 * 8);
    assert_eq!(size_of::<sb_listening_switch>(), 8 + 8 * 4 + size_of::<sb_switch_self>());
    assert_eq!(size_of::<sb_stalled>(), size_of::<sb_flow>() + 4 * 4 + 2 * 2);
    assert_eq!(size_of::<sb_records>(), 8 + 4 * 4);
    assert_eq!(size_of::<sb_listed>(), size_of::<sb_flow>() + size_of::<sb_flow_state>());
    assert_eq!(size_of::<sb_switch_heard>(), size_of::<sb_switch_self>() + 4 + 1 + 3);
    assert_eq!(size_of::<sb_fact>(), 36 + 4 + 2 * 2 + 4 + 2 * 4 + 2 * 8);
    assert_eq!(size_of::<sb_seen>(), size_of::<sb_asking>() + size_of::<sb_fact>());
    assert_eq!(size_of::<sb_express_request>(), 36 + 3 * 4 + 2 * 2 + 4 + 8);
    assert_eq!(size_of::<sb_adopting>(), 8 + 8);
    assert_eq!(size_of::<sb_client_key_input>(), 16 + 8);
    assert_eq!(size_of::<sb_introduction>(), 4 + 16 + 4 + 8 + 4 + 2 + 2);
    assert_eq!(size_of::<sb_introduction_input>(), 16 + size_of::<sb_flow>() + 3 * 4 + 4);
    assert_eq!(size_of::<sb_node_clients>(), 2 * 16 + 4 + 4);
    assert_eq!(size_of::<sb_network>(), 4 + 16);
    assert_eq!(size_of::<sb_client_settings>(), 4 + 4);
    assert_eq!(size_of::<sb_client_keys>(), 2 * 16);
    assert_eq!(size_of::<sb_direct_flow>(), 2 * 8 + 2 * 16 + 2 + 1 + 1 + 8 * 4 + 4);
    assert_eq!(size_of::<sb_direct_node>(), 4 * 8);
    assert_eq!(size_of::<sb_sized>(), size_of::<sb_asking>() + 4 + 2 + 2);
    assert_eq!(size_of::<sb_closed>(), 36 + 4 + 8 + size_of::<sb_owned>());
    assert_eq!(size_of::<sb_heads>(), 4 + 2 + 2 + 4096 + 2048);
    assert_eq!(size_of::<sb_insurable>(), 36 + 4 + 8 + size_of::<sb_owned>() + size_of::<sb_heads>());
    assert_eq!(size_of::<sb_insurable_end>(), 36 + 4 + 4);
    assert_eq!(size_of::<sb_insured>(), 4 * 4 + 2 * 8 + 4 + 2 + 4 + 6);
    assert_eq!(size_of::<sb_heirs>(), 2 * 4 + 2 * 16);
    assert_eq!(size_of::<sb_fingerprint>(), 7 * 8 + 2 * 8 + 2 * 4);
    assert_eq!(size_of::<sb_heard_fingerprint>(), 2 * 4 + 4 * 8);
    assert_eq!(size_of::<sb_told_fingerprint>(), 2 * 4 + 2 * 2 + 36 + 3 * 8);
}

#[test]
fn a_tag_binds_peers_time_flow_position_and_option() {
    let key = keys::handoff_key(&[0x42; 32]);
    let (flow, address) = (flow(false), |text: &str| text.parse::<IpAddr>().unwrap());
    let peers = Peers { node: address("192.0.2.21").into(), switch: address("192.0.2.10"), epoch: 7 };
    let inner = bare(&flow, true, Seq(1), Seq(2), flags::ACK);
    let view = TcpView::parse(&inner).unwrap();
    let plain = option(sb_op::SB_OP_ADOPT);
    let reference = tag(&key, &peers, &flow, &view, &plain);
    let elsewhere = address("192.0.2.22");
    let other_flow = sb_flow { client_port: 1, ..flow };
    let changed = [
        tag(&keys::handoff_key(&[0x43; 32]), &peers, &flow, &view, &plain),
        tag(&key, &Peers { node: elsewhere.into(), ..peers }, &flow, &view, &plain),
        tag(
            &key,
            &Peers { node: NodeAddress { number: 0x100, ..peers.node }, ..peers },
            &flow,
            &view,
            &plain,
        ),
        tag(&key, &Peers { switch: elsewhere, ..peers }, &flow, &view, &plain),
        tag(&key, &Peers { epoch: 8, ..peers }, &flow, &view, &plain),
        tag(&key, &Peers { epoch: 7 + (1 << 32), ..peers }, &flow, &view, &plain),
        tag(&key, &peers, &other_flow, &view, &plain),
        tag(&key, &peers, &flow, &TcpView { seq: Seq(9), ..view }, &plain),
        tag(&key, &peers, &flow, &TcpView { ack: Seq(9), ..view }, &plain),
    ];
    for (index, tag) in changed.iter().enumerate() {
        assert_ne!(*tag, reference, "change {index}");
    }
    // All of the option behind its header.
    let bytes = bytes_of(&plain);
    for at in 4..bytes.len() - 8 {
        let mut other = bytes.to_vec();
        other[at] ^= 1;
        let other: sb_option = read_from(&other).unwrap();
        assert_ne!(tag(&key, &peers, &flow, &view, &other), reference, "byte {at}");
    }
}
