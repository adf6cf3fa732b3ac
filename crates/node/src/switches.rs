//! Tells the switches of each other: each second, which ones this node hears and what they say of themselves. Switches do
//! not talk to each other, and the configuration does not say where they are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use switchback_wire::records::{Numbered, Record, encode};
use switchback_wire::switches::{SwitchHeard, SwitchSelf};
use switchback_wire::{sb_listening_switch, sb_switch_heard};

use crate::facts::Asker;
use crate::programs::{Listening, by_switch};
use crate::signer::Signer;

/// Interval of SWITCHES packets.
const INTERVAL: Duration = Duration::from_secs(1);

/// Sends SWITCHES in time.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    sent: Option<Instant>,
}

impl Relay {
    /// Packets of each node to send now to the switches, which have been heard lately; `now_ns` is the same time by the clock of
    /// `heard_ns`.
    pub(crate) fn packets(
        &mut self,
        (now, now_ns): (Instant, u64),
        signer: &Signer,
        listening: &[Listening],
    ) -> Vec<(IpAddr, Vec<u8>)> {
        if self.sent.is_some_and(|sent| now.duration_since(sent) < INTERVAL) {
            return Vec::new();
        }
        self.sent = Some(now);
        let records: Vec<sb_switch_heard> =
            heard(&by_switch(listening), now_ns).iter().map(SwitchHeard::to_wire).collect();
        let packet = |(switch, node): Asker, records: &[sb_switch_heard]| {
            encode(&signer.key, signer.of(node).peers(switch), 0, Numbered::default(), records)
                .map(|packet| (switch, packet))
        };
        let to = |to: &Listening| {
            let parts = records.chunks(sb_switch_heard::MAX);
            parts.filter_map(|part| packet(to.asker, part)).collect::<Vec<_>>()
        };
        listening.iter().flat_map(to).collect()
    }
}

/// The switches that have said which ones they are, each number once.
fn heard(switches: &[(IpAddr, sb_listening_switch)], now_ns: u64) -> Vec<SwitchHeard> {
    let mut by_number: BTreeMap<u8, SwitchHeard> = BTreeMap::new();
    for (_, switch) in switches {
        let said = SwitchSelf::from_wire(&switch.own);
        let Some(number) = said.number else { continue };
        let age = Duration::from_nanos(now_ns.saturating_sub(switch.heard_ns));
        let before = by_number.get(&number);
        let addresses = before.map_or(0, |before| before.addresses).saturating_add(1);
        let last = before.filter(|before| before.age < age).copied();
        let last = last.unwrap_or(SwitchHeard { said, age, addresses });
        by_number.insert(number, SwitchHeard { addresses, ..last });
    }
    by_number.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::handoff::OVERHEAD_V4;
    use switchback_wire::packet::TcpView;
    use switchback_wire::records::read;
    use switchback_wire::sb_key;

    const KEY: sb_key = sb_key { k0: 1, k1: 2 };
    const NOW_NS: u64 = 10_000_000_000;

    fn switch(last: u8, number: Option<u8>, taken_over: u32, ms: u64) -> (IpAddr, sb_listening_switch) {
        let own = SwitchSelf { number, taken_over, ..Default::default() }.to_wire();
        let heard_ns = NOW_NS - ms * 1_000_000;
        (IpAddr::from([192, 0, 2, last]), sb_listening_switch { heard_ns, own, ..Default::default() })
    }

    fn told(relay: &mut Relay, now: Instant, switches: &[(IpAddr, sb_listening_switch)]) -> Vec<(u8, usize)> {
        let node = IpAddr::from([192, 0, 2, 21]).into();
        let signer = Signer { key: KEY, node, clock: Default::default() };
        let listening =
            |(switch, said): &(IpAddr, sb_listening_switch)| Listening { asker: (*switch, 0), said: *said };
        let listening: Vec<Listening> = switches.iter().map(listening).collect();
        let packets = relay.packets((now, NOW_NS), &signer, &listening);
        let read = |(switch, packet): (IpAddr, Vec<u8>)| {
            let inner = &packet[OVERHEAD_V4..];
            let view = TcpView::parse(inner).unwrap();
            let data = &inner[view.data..view.end];
            let IpAddr::V4(switch) = switch else { panic!("{switch}") };
            (switch.octets()[3], read::<sb_switch_heard>(data, &[KEY, KEY]).unwrap().1.len())
        };
        packets.into_iter().map(read).collect()
    }

    #[test]
    fn each_number_is_told_once_with_its_last_word() {
        let row = |heard: &SwitchHeard| {
            (heard.said.number.unwrap(), heard.said.taken_over, heard.age.as_millis(), heard.addresses)
        };
        let mut switches =
            vec![switch(10, Some(1), 7, 900), switch(11, None, 0, 0), switch(12, Some(0), 8, 20)];
        let rows: Vec<_> = heard(&switches, NOW_NS).iter().map(row).collect();
        assert_eq!(rows, [(0, 8, 20, 1), (1, 7, 900, 1)]);
        switches.extend([switch(13, Some(1), 9, 100), switch(14, Some(1), 3, 500)]);
        for _ in 0..switches.len() {
            switches.rotate_left(1);
            let rows: Vec<_> = heard(&switches, NOW_NS).iter().map(row).collect();
            assert_eq!(rows, [(0, 8, 20, 1), (1, 9, 100, 3)], "in any order");
        }
    }

    #[test]
    fn all_switches_are_told_of_all_each_second() {
        let (mut relay, start) = (Relay::default(), Instant::now());
        let switches = [switch(10, Some(0), 0, 0), switch(11, None, 0, 0)];
        assert_eq!(told(&mut relay, start, &switches), [(10, 1), (11, 1)], "also one of a version before");
        assert_eq!(told(&mut relay, start + INTERVAL / 2, &switches), []);
        assert_eq!(told(&mut relay, start + INTERVAL, &switches), [(10, 1), (11, 1)]);
        assert_eq!(told(&mut relay, start + INTERVAL * 2, &switches[1..]), [], "nothing to tell");
    }

    #[test]
    fn as_many_switches_as_there_can_be_are_two_packets() {
        let switches: Vec<_> = (0..64).map(|number| switch(number + 10, Some(number), 0, 0)).collect();
        let packets = told(&mut Relay::default(), Instant::now(), &switches);
        assert_eq!((packets.len(), &packets[..2]), (128, &[(10, 45), (10, 19)][..]));
    }
}
