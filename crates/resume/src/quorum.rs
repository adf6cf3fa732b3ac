//! Which TLS records of a response may have gone out, known to a quorum of nodes (docs/decisions/0052).
//!
//! The owner of a response tells a set of heirs of each record before that goes out, and waits for a quorum of them
//! ([`Quorums::to_send`]). An heir that takes over has the promises of another quorum ([`Quorums::to_take_over`]). The two
//! have an heir in common. A set has one owner, as the ledgers of Apache BookKeeper have one writer; promises are those of
//! Paxos (Lamport, 1998). An owner with other heirs, and one that has taken over, begins another set, and sends no new record
//! before so many heirs of the old one have left it that nobody can take over by it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Number of a take-over; the first owner has the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ballot {
    round: u32,
    /// Nobody else's, and none of an earlier one of the same node, which may have forgotten it.
    nonce: u64,
}

impl Ballot {
    /// A later one.
    fn after(self, nonce: u64) -> Self {
        Ballot { round: self.round + 1, nonce }
    }
}

/// A set of heirs: its owner, and the number that the owner has given it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetId {
    owner: Ballot,
    number: u32,
}

impl SetId {
    /// The owner of the set.
    pub fn owner(&self) -> Ballot {
        self.owner
    }
}

/// How many of some heirs are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorums(usize);

impl Quorums {
    /// Those of so many heirs; None of fewer than two.
    pub fn of(heirs: usize) -> Option<Self> {
        (heirs >= 2).then_some(Quorums(heirs))
    }

    /// Heirs that have to know a record before it goes out.
    pub fn to_send(self) -> usize {
        self.0.div_ceil(2)
    }

    /// Heirs that have to promise a take-over, with the one that takes over.
    pub fn to_take_over(self) -> usize {
        self.0 - self.to_send() + 1
    }

    /// Heirs without which nobody can take over.
    pub fn to_retire(self) -> usize {
        self.0 - self.to_take_over() + 1
    }
}

/// A record, as it may have gone out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Bytes of plaintext.
    pub len: u16,
    /// The tag of the AEAD.
    pub tag: [u8; 16],
    /// The fingerprint of the body with it, if that is known by fingerprints.
    pub after: u64,
}

/// The records from a number on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Number of the first one.
    pub first: u64,
    /// Sequence number at which it begins.
    pub seq: u32,
    /// Bytes of the body before it.
    pub sent: u64,
    /// The fingerprint of the body before it, if that is known by fingerprints.
    pub before: u64,
    /// Bytes of a record besides its plaintext.
    pub overhead: u16,
    /// They themselves.
    pub sealed: Vec<Sealed>,
}

/// The record in which a client's acknowledgment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the record.
    pub number: u64,
    /// Sequence number at which it begins.
    pub seq: u32,
    /// Bytes of the body before it.
    pub sent: u64,
    /// The fingerprint of the body before it.
    pub before: u64,
}

impl Records {
    /// Number behind the last one.
    pub fn end(&self) -> u64 {
        self.first + self.sealed.len() as u64
    }

    /// The record with this number.
    pub fn get(&self, number: u64) -> Option<&Sealed> {
        self.sealed.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Forgets those before a number: the client has them.
    pub fn forget_before(&mut self, number: u64) {
        let past = number.saturating_sub(self.first).min(self.sealed.len() as u64) as usize;
        for sealed in self.sealed.drain(..past) {
            self.first += 1;
            self.seq = self.seq.wrapping_add(u32::from(sealed.len) + u32::from(self.overhead));
            self.sent += u64::from(sealed.len);
            self.before = sealed.after;
        }
    }

    /// The record that has the byte with this sequence number, which may be the one behind the last.
    pub fn place(&self, seq: u32) -> Option<Place> {
        let Records { first, seq: start, sent, before, .. } = *self;
        let mut place = Place { number: first, seq: start, sent, before };
        for sealed in &self.sealed {
            let (has, whole) = (seq.wrapping_sub(place.seq), self.wire_len(sealed));
            if has < whole {
                return Some(place);
            }
            if has >= 1 << 31 {
                return None;
            }
            place = Place {
                number: place.number + 1,
                seq: place.seq.wrapping_add(whole),
                sent: place.sent + u64::from(sealed.len),
                before: sealed.after,
            };
        }
        (place.seq == seq).then_some(place)
    }

    /// Bytes of a record on the wire.
    fn wire_len(&self, sealed: &Sealed) -> u32 {
        u32::from(sealed.len) + u32::from(self.overhead)
    }

    /// Memory of the records, in bytes.
    pub fn cost(&self) -> usize {
        size_of::<Records>() + self.sealed.len() * size_of::<Sealed>()
    }
}

/// The records of a response, as an heir knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    set: SetId,
    promised: Ballot,
    records: Records,
    /// Sets by which others may take over, and those of them that this heir has left for this one.
    earlier: Vec<Retiring>,
    left: Vec<SetId>,
}

/// A set of heirs that its owner has left for another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retiring {
    set: SetId,
    heirs: Vec<String>,
    /// The heirs that have left it, too.
    left: BTreeSet<String>,
    /// So many of them, and nobody can take over by it.
    needed: usize,
}

impl Retiring {
    fn leaves(&mut self, heir: &str) {
        if self.heirs.iter().any(|name| name == heir) {
            self.left.insert(heir.to_owned());
        }
    }
}

/// The set of heirs is another one, or is to have another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// What an heir answers to one that takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// None if the heir is in an earlier set, and has heard of no record of this one.
    records: Option<Records>,
    earlier: Vec<Retiring>,
    left: Vec<SetId>,
}

impl Replica {
    /// A set of heirs begins.
    pub fn new(set: SetId, records: Records, earlier: Vec<Retiring>) -> Self {
        Replica { set, promised: set.owner, records, earlier, left: Vec::new() }
    }

    /// The records.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The take-over that this heir hears of no earlier owner than; None: of any.
    pub fn promised(&self) -> Option<Ballot> {
        Some(self.promised).filter(|promised| *promised > Ballot::default())
    }

    /// Whether this set has begun in the place of that one, and a member that is still in that one has not heard of it.
    pub fn follows(&self, set: SetId) -> bool {
        self.earlier.iter().any(|earlier| earlier.set == set)
    }

    /// Another set begins in the place of this one, which this heir leaves: returned, unless it has promised a third node to
    /// hear of no other owner.
    pub fn begin(
        &mut self,
        set: SetId,
        records: Records,
        earlier: Vec<Retiring>,
    ) -> Result<Option<SetId>, Refused> {
        if set.owner < self.promised || set <= self.set {
            return Err(Refused);
        }
        let before = self.has_promised_only(set.owner).then_some(self.set);
        let mut left = std::mem::take(&mut self.left);
        left.extend(before);
        left.retain(|left| earlier.iter().any(|retiring| retiring.set == *left));
        *self = Replica { left, ..Replica::new(set, records, earlier) };
        Ok(before)
    }

    /// Whether no take-over by the set has been promised but this one.
    fn has_promised_only(&self, by: Ballot) -> bool {
        self.promised == self.set.owner || self.promised == by
    }

    /// Keeps records that follow, the first of them with this number; the number behind the last one.
    pub fn add(&mut self, set: SetId, first: u64, sealed: &[Sealed]) -> Result<u64, Refused> {
        if set != self.set || set.owner < self.promised {
            return Err(Refused);
        }
        if first <= self.records.end() {
            let known = usize::try_from(self.records.end() - first).unwrap_or(usize::MAX);
            self.records.sealed.extend(sealed.iter().skip(known));
        }
        Ok(self.records.end())
    }

    /// The client has everything before a record.
    pub fn forget_before(&mut self, number: u64) {
        self.records.forget_before(number);
    }

    /// Nobody can take over by an earlier set any more.
    pub fn is_only(&mut self) {
        self.earlier.clear();
    }

    /// Promises to hear of no earlier owner any more. An heir in a set before that one has not heard that it has begun, and
    /// will not.
    pub fn promise(&mut self, set: SetId, earlier: &[SetId], by: Ballot) -> Result<Promise, Refused> {
        let has_promised_only = self.has_promised_only(by) || self.promised == set.owner;
        let is_behind = earlier.contains(&self.set) && has_promised_only;
        if set != self.set && !is_behind || by < self.promised {
            return Err(Refused);
        }
        self.promised = by;
        let records = (!is_behind).then(|| self.records.clone());
        Ok(Promise { records, earlier: self.earlier.clone(), left: self.left.clone() })
    }

    /// Whether this owner, which is the set's or has taken over by it, may end the set.
    pub fn leave(&self, set: SetId, by: Ballot) -> Result<(), Refused> {
        if set == self.set && self.has_promised_only(by) { Ok(()) } else { Err(Refused) }
    }
}

/// Promises of a set's heirs to one of them.
#[derive(Debug)]
pub struct TakeOver {
    set: SetId,
    by: Ballot,
    me: String,
    heirs: Vec<String>,
    quorums: Quorums,
    earlier: Vec<Retiring>,
    promises: Vec<(String, Promise)>,
}

impl TakeOver {
    /// Begins with the promise of the heir itself. `nonce` is random.
    pub fn begin(mut replica: Replica, heirs: &[String], me: &str, nonce: u64) -> Option<Self> {
        let by = replica.promised.after(nonce);
        let own = replica.promise(replica.set, &[], by).ok()?;
        let promises = vec![(me.to_owned(), own)];
        let (me, quorums) = (me.to_owned(), Quorums::of(heirs.len())?);
        let Replica { set, earlier, .. } = replica;
        Some(TakeOver { set, by, me, heirs: heirs.to_vec(), quorums, earlier, promises })
    }

    /// The set, and the number of the take-over.
    pub fn id(&self) -> (SetId, Ballot) {
        (self.set, self.by)
    }

    /// Sets in which heirs may be that have not heard of this one.
    pub fn earlier(&self) -> Vec<SetId> {
        self.earlier.iter().map(|earlier| earlier.set).collect()
    }

    /// Hears the promise of another heir.
    pub fn hear(&mut self, heir: &str, promise: Promise) {
        if self.promises.iter().all(|(name, _)| name != heir) {
            self.promises.push((heir.to_owned(), promise));
        }
    }

    /// The heirs that have promised.
    pub fn has(&self, heir: &str) -> bool {
        self.promises.iter().any(|(name, _)| name == heir)
    }

    /// The new owner, if there are enough promises. It knows all records that may have gone out, and has still to see to it
    /// that nobody else takes over.
    pub fn finish(&self) -> Option<Owner> {
        if self.promises.len() < self.quorums.to_take_over() {
            return None;
        }
        let in_set = || self.promises.iter().filter(|(_, promise)| promise.records.is_some());
        let lists = in_set().filter_map(|(_, promise)| promise.records.as_ref());
        let longest = lists.max_by_key(|records| records.end())?;
        let mut owner = Owner::new(self.by, longest.clone(), longest.first);
        if !in_set().any(|(_, promise)| promise.earlier.is_empty()) {
            owner.retiring.clone_from(&self.earlier);
        }
        for (name, promise) in in_set() {
            promise.left.iter().for_each(|set| owner.leaves(name, *set));
        }
        owner.retiring.push(Retiring {
            set: self.set,
            heirs: self.heirs.clone(),
            left: BTreeSet::from([self.me.clone()]),
            needed: self.quorums.to_retire(),
        });
        owner.settle();
        Some(owner)
    }
}

/// What the owner of a response knows of its heirs.
#[derive(Clone, Debug)]
pub struct Owner {
    ballot: Ballot,
    sets: u32,
    records: Records,
    heirs: Option<Heirs>,
    /// Earlier sets by which an heir may still take over.
    retiring: Vec<Retiring>,
    /// Number before which records may go out.
    released: u64,
}

#[derive(Clone, Debug)]
struct Heirs {
    set: SetId,
    quorums: Quorums,
    /// Number behind the last record that each of them knows.
    known: Vec<(String, u64)>,
}

impl Default for Owner {
    fn default() -> Self {
        Owner::first(Records::default())
    }
}

impl Owner {
    fn new(ballot: Ballot, records: Records, released: u64) -> Self {
        Owner { ballot, sets: 0, records, heirs: None, retiring: Vec::new(), released }
    }

    /// The first owner of a response, which has sent these records.
    pub fn first(records: Records) -> Self {
        let sent = records.end();
        Owner::new(Ballot::default(), records, sent)
    }

    /// The records that the client may lack.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The current set.
    pub fn set(&self) -> Option<SetId> {
        self.heirs.as_ref().map(|heirs| heirs.set)
    }

    /// Sets before the current one by which others may take over.
    pub fn earlier(&self) -> &[Retiring] {
        &self.retiring
    }

    /// Whether nobody can take over by a set before the current one.
    pub fn is_only(&self) -> bool {
        self.retiring.is_empty()
    }

    /// The heirs that have not left earlier sets, and are to do so.
    pub fn to_leave(&self) -> Vec<(String, SetId, Ballot)> {
        let of_set = |retiring: &Retiring| {
            let left = |heir: &&String| !retiring.left.contains(*heir);
            let heirs: Vec<String> = retiring.heirs.iter().filter(left).cloned().collect();
            let (set, by) = (retiring.set, self.ballot);
            heirs.into_iter().map(move |heir| (heir, set, by))
        };
        self.retiring.iter().flat_map(of_set).collect()
    }

    /// Has these heirs from now on; fewer than two are none. They, and those before, are to be told.
    pub fn set_heirs(&mut self, names: &[String]) {
        if let Some(Heirs { set, quorums, known }) = self.heirs.take() {
            let heirs = known.into_iter().map(|(name, _)| name).collect();
            self.retiring.push(Retiring { set, heirs, left: BTreeSet::new(), needed: quorums.to_retire() });
        }
        if let Some(quorums) = Quorums::of(names.len()) {
            self.sets += 1;
            let set = SetId { owner: self.ballot, number: self.sets };
            let known = names.iter().map(|name| (name.clone(), 0)).collect();
            self.heirs = Some(Heirs { set, quorums, known });
        }
        self.settle();
    }

    /// Adds a record that is to go out.
    pub fn add(&mut self, sealed: Sealed) {
        self.records.sealed.push(sealed);
        self.settle();
    }

    /// The client has everything before a record.
    pub fn forget_before(&mut self, number: u64) {
        self.records.forget_before(number);
    }

    /// An heir of a set knows all records before this number.
    pub fn hear_known(&mut self, heir: &str, set: SetId, end: u64) {
        let heirs = self.heirs.as_mut().filter(|heirs| heirs.set == set);
        if let Some((_, known)) =
            heirs.and_then(|heirs| heirs.known.iter_mut().find(|(name, _)| name == heir))
        {
            *known = end.max(*known);
        }
        self.settle();
    }

    /// An heir has left a set.
    pub fn hear_left(&mut self, heir: &str, set: SetId) {
        self.leaves(heir, set);
        self.settle();
    }

    fn leaves(&mut self, heir: &str, set: SetId) {
        if let Some(retiring) = self.retiring.iter_mut().find(|retiring| retiring.set == set) {
            retiring.leaves(heir);
        }
    }

    /// Records before this number may go out.
    pub fn released(&self) -> u64 {
        self.released
    }

    fn settle(&mut self) {
        self.retiring.retain(|retiring| retiring.left.len() < retiring.needed);
        if !self.retiring.is_empty() {
            return;
        }
        let known = match &self.heirs {
            None => self.records.end(),
            Some(heirs) => {
                let mut known: Vec<u64> = heirs.known.iter().map(|(_, end)| *end).collect();
                known.sort_unstable_by_key(|end| std::cmp::Reverse(*end));
                known[heirs.quorums.to_send() - 1]
            }
        };
        self.released = self.released.max(known);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn quorums_meet() {
        assert_eq!(Quorums::of(1), None);
        for heirs in 2..20 {
            let quorums = Quorums::of(heirs).unwrap();
            assert!(quorums.to_send() + quorums.to_take_over() > heirs);
            assert!(quorums.to_retire() + quorums.to_take_over() > heirs);
        }
        let of = |heirs| Quorums::of(heirs).map(|quorums| (quorums.to_send(), quorums.to_take_over()));
        assert_eq!((of(2), of(3)), (Some((1, 2)), Some((2, 2))));
    }

    /// xorshift64*
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
        }
    }

    #[derive(Clone)]
    enum Message {
        Begin { set: SetId, heirs: Vec<String>, records: Records, earlier: Vec<Retiring> },
        Add { set: SetId, records: Records, is_only: bool },
        Leave { set: SetId, by: Ballot },
        Known { heir: usize, set: SetId, end: u64, left: Option<SetId> },
        Left { heir: usize, set: SetId },
        Prepare { set: SetId, earlier: Vec<SetId>, by: Ballot },
        Newer { of: SetId, heirs: Vec<String>, replica: Replica },
        Promised { heir: usize, set: SetId, by: Ballot, promise: Promise },
    }

    struct Node {
        /// With the heirs of the set.
        replica: Option<(Replica, Vec<String>)>,
        /// What it has promised in a set that it has left.
        promised: Ballot,
        owner: Option<Owner>,
        /// What it has sent, of `owner`.
        sent: u64,
        taking: Option<TakeOver>,
    }

    /// Nodes of which the first has the response. Messages between two arrive in order, or not at all from one on.
    struct World {
        nodes: Vec<Node>,
        messages: Vec<(usize, usize, Message)>,
        /// What anybody has sent under a number.
        wire: HashMap<u64, Sealed>,
        takeovers: usize,
        made: u64,
    }

    impl World {
        fn new(nodes: usize) -> Self {
            let promised = Ballot::default();
            let node = |_| Node { replica: None, promised, owner: None, sent: 0, taking: None };
            let mut world = World {
                nodes: (0..nodes).map(node).collect(),
                messages: Vec::new(),
                wire: HashMap::new(),
                takeovers: 0,
                made: 0,
            };
            world.nodes[0].owner = Some(Owner::default());
            world
        }

        fn name(node: usize) -> String {
            node.to_string()
        }

        fn say(&mut self, from: usize, to: usize, message: Message) {
            self.messages.push((from, to, message));
        }

        /// An owner makes another record, tells its heirs, and sends what it may.
        fn write(&mut self, node: usize) {
            self.made += 1;
            let mut tag = [0; 16];
            tag[..8].copy_from_slice(&self.made.to_le_bytes());
            let Some(owner) = &mut self.nodes[node].owner else { return };
            owner.add(Sealed { len: 1, tag, after: 0 });
            self.tell(node);
        }

        fn tell(&mut self, node: usize) {
            self.send(node);
            let Some(owner) = &self.nodes[node].owner else { return };
            let (records, is_only) = (owner.records.clone(), owner.is_only());
            let Some(heirs) = owner.heirs.clone() else { return };
            for (heir, _) in &heirs.known {
                let message = Message::Add { set: heirs.set, records: records.clone(), is_only };
                self.say(node, heir.parse().unwrap(), message);
            }
        }

        fn send(&mut self, node: usize) {
            let Node { owner: Some(owner), sent, .. } = &mut self.nodes[node] else { return };
            for number in *sent..owner.released() {
                let sealed = *owner.records.get(number).unwrap();
                let before = self.wire.insert(number, sealed);
                assert!(before.is_none_or(|before| before == sealed), "{number}");
                *sent = number + 1;
            }
        }

        fn change_heirs(&mut self, node: usize, heirs: Vec<usize>) {
            let Some(owner) = &mut self.nodes[node].owner else { return };
            let names: Vec<String> = heirs.iter().map(|heir| World::name(*heir)).collect();
            owner.set_heirs(&names);
            let (set, records, earlier) = (owner.set(), owner.records.clone(), owner.earlier().to_vec());
            let to_leave = owner.to_leave();
            for (heir, set, by) in to_leave {
                self.say(node, heir.parse().unwrap(), Message::Leave { set, by });
            }
            if let Some(set) = set {
                for heir in heirs {
                    let (heirs, records, earlier) = (names.clone(), records.clone(), earlier.clone());
                    self.say(node, heir, Message::Begin { set, heirs, records, earlier });
                }
            }
            self.send(node);
        }

        /// A node has no room for a response.
        fn evict(&mut self, node: usize) {
            if let Some((replica, _)) = self.nodes[node].replica.take() {
                let promised = replica.promised().unwrap_or_default();
                self.nodes[node].promised = self.nodes[node].promised.max(promised);
            }
        }

        /// An heir restarts.
        fn restart(&mut self, node: usize) {
            if self.nodes[node].owner.is_none() {
                (self.nodes[node].replica, self.nodes[node].taking) = (None, None);
                self.nodes[node].promised = Ballot::default();
                self.messages.retain(|(of, at, _)| *of != node && *at != node);
            }
        }

        fn take_over(&mut self, node: usize) {
            // An owner's own replica leaves the set with it.
            let Some((replica, heirs)) = self.nodes[node].replica.take() else { return };
            self.take_over_by(node, replica, &heirs);
        }

        fn take_over_by(&mut self, node: usize, replica: Replica, heirs: &[String]) {
            self.made += 1;
            let taking = TakeOver::begin(replica, heirs, &World::name(node), self.made);
            let Some(taking) = taking else { return };
            let (set, by) = taking.id();
            for heir in heirs {
                let heir: usize = heir.parse().unwrap();
                if heir != node {
                    let earlier = taking.earlier();
                    self.say(node, heir, Message::Prepare { set, earlier, by });
                }
            }
            self.nodes[node].taking = Some(taking);
        }

        fn deliver(&mut self, (from, to, message): (usize, usize, Message)) {
            match message {
                Message::Begin { set, heirs, records, earlier } => {
                    // Who has the response is no heir of it.
                    let Node { owner, taking, promised, .. } = &self.nodes[to];
                    if owner.is_some() || taking.is_some() || set.owner < *promised {
                        return;
                    }
                    let end = records.end();
                    let left = match &mut self.nodes[to].replica {
                        None => {
                            let replica = Replica::new(set, records, earlier);
                            self.nodes[to].replica = Some((replica, heirs));
                            None
                        }
                        Some((replica, of)) => match replica.begin(set, records, earlier) {
                            Ok(left) => {
                                *of = heirs;
                                left
                            }
                            Err(Refused) => return,
                        },
                    };
                    self.say(to, from, Message::Known { heir: to, set, end, left });
                }
                Message::Add { set, records, is_only } => {
                    let Some((replica, _)) = &mut self.nodes[to].replica else { return };
                    if let Ok(end) = replica.add(set, records.first, &records.sealed) {
                        if is_only {
                            replica.is_only();
                        }
                        self.say(to, from, Message::Known { heir: to, set, end, left: None });
                    }
                }
                Message::Leave { set, by } => {
                    let Some((replica, _)) = &self.nodes[to].replica else { return };
                    if replica.leave(set, by).is_ok() {
                        self.evict(to);
                        self.say(to, from, Message::Left { heir: to, set });
                    }
                }
                Message::Known { heir, set, end, left } => {
                    let Some(owner) = &mut self.nodes[to].owner else { return };
                    owner.hear_known(&World::name(heir), set, end);
                    if let Some(left) = left {
                        owner.hear_left(&World::name(heir), left);
                    }
                    self.send(to);
                }
                Message::Left { heir, set } => {
                    let Some(owner) = &mut self.nodes[to].owner else { return };
                    owner.hear_left(&World::name(heir), set);
                    self.send(to);
                }
                Message::Prepare { set, earlier, by } => {
                    let Some((replica, heirs)) = &mut self.nodes[to].replica else { return };
                    if let Ok(promise) = replica.promise(set, &earlier, by) {
                        self.say(to, from, Message::Promised { heir: to, set, by, promise });
                    } else if replica.follows(set) {
                        let (heirs, replica) = (heirs.clone(), replica.clone());
                        self.say(to, from, Message::Newer { of: set, heirs, replica });
                    }
                }
                Message::Newer { of, heirs, replica } => {
                    let is_taking = self.nodes[to].taking.as_ref().is_some_and(|taking| taking.set == of);
                    if is_taking && heirs.contains(&World::name(to)) {
                        self.take_over_by(to, replica, &heirs);
                    }
                }
                Message::Promised { heir, set, by, promise } => {
                    let Some(taking) = &mut self.nodes[to].taking else { return };
                    if taking.id() != (set, by) {
                        return;
                    }
                    taking.hear(&World::name(heir), promise);
                    if let Some(owner) = taking.finish() {
                        let node = &mut self.nodes[to];
                        (node.owner, node.taking, node.sent) = (Some(owner), None, 0);
                        self.takeovers += 1;
                        self.send(to);
                    }
                }
            }
        }
    }

    /// Owners that live on, messages that are lost or come late, heirs that change, and heirs that take over at any time.
    #[test]
    fn no_number_is_sent_with_two_tags() {
        let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
        println!("seed {seed}");
        let mut random = Random(seed);
        let (mut takeovers, mut sent) = (0, 0);
        for round in 0..3000 {
            let nodes = 3 + round % 4;
            let mut world = World::new(nodes);
            let some = |random: &mut Random| {
                let mut others: Vec<usize> = (0..nodes).collect();
                others.retain(|_| random.below(4) > 0);
                others.truncate(3);
                others
            };
            for _ in 0..400 {
                match random.below(24) {
                    0 => world.take_over(random.below(nodes)),
                    1 => {
                        let node = random.below(nodes);
                        let heirs = some(&mut random).into_iter().filter(|heir| *heir != node).collect();
                        world.change_heirs(node, heirs);
                    }
                    2 => world.evict(random.below(nodes)),
                    3 => world.restart(random.below(nodes)),
                    4..7 => world.write(random.below(nodes)),
                    7 if !world.messages.is_empty() => {
                        // The connection between the two breaks.
                        let (from, to, _) = world.messages[random.below(world.messages.len())];
                        world.messages.retain(|(of, at, _)| (*of, *at) != (from, to));
                    }
                    _ if !world.messages.is_empty() => {
                        let (from, to, _) = world.messages[random.below(world.messages.len())];
                        let first = |(of, at, _): &(usize, usize, Message)| (*of, *at) == (from, to);
                        let next = world.messages.iter().position(first).unwrap();
                        let message = world.messages.remove(next);
                        world.deliver(message);
                    }
                    _ => {}
                }
            }
            takeovers += world.takeovers;
            sent += world.wire.len();
        }
        println!("{takeovers} take-overs, {sent} records");
        assert!(takeovers > 100 && sent > 1000, "{takeovers} take-overs, {sent} records");
    }

    #[test]
    fn who_has_promised_keeps_to_it() {
        let set = |number| SetId { number, ..SetId::default() };
        let mut replica = Replica::new(set(1), Records::default(), Vec::new());
        let later = Ballot::default().after(1);
        assert_eq!(replica.promise(set(2), &[], later), Err(Refused), "another set");
        assert!(replica.promise(set(1), &[], later).is_ok() && replica.promise(set(1), &[], later).is_ok());
        assert_eq!(replica.promise(set(1), &[], Ballot::default()), Err(Refused));
        assert_eq!(replica.begin(set(2), Records::default(), Vec::new()), Err(Refused));
        assert_eq!(replica.add(set(1), 0, &[]), Err(Refused));
        assert_eq!(replica.leave(set(1), Ballot::default()), Err(Refused));
        assert_eq!(replica.leave(set(1), later), Ok(()));
        let of_later = SetId { owner: later, number: 1 };
        assert_eq!(replica.begin(of_later, Records::default(), Vec::new()), Ok(Some(set(1))));
    }

    #[test]
    fn an_acknowledgment_has_its_place() {
        let sealed = |len| Sealed { len, tag: [0; 16], after: u64::from(len) };
        let mut records = Records {
            first: 5,
            seq: u32::MAX - 40,
            sent: 1000,
            before: 9,
            overhead: 22,
            sealed: vec![sealed(10), sealed(20), sealed(30)],
        };
        let start = records.seq;
        let at = |records: &Records, more: u32| records.place(start.wrapping_add(more));
        let place =
            |number, more, sent, before| Some(Place { number, seq: start.wrapping_add(more), sent, before });
        for (more, expected) in [
            (0, place(5, 0, 1000, 9)),
            (31, place(5, 0, 1000, 9)),
            (32, place(6, 32, 1010, 10)),
            (125, place(7, 74, 1030, 20)),
            (126, place(8, 126, 1060, 30)),
            (127, None),
            (u32::MAX, None),
        ] {
            assert_eq!(at(&records, more), expected, "{more}");
        }
        records.forget_before(7);
        assert_eq!((records.first, records.end(), records.sent, records.before), (7, 8, 1030, 20));
        assert_eq!((at(&records, 73), at(&records, 74)), (None, place(7, 74, 1030, 20)));
        records.forget_before(3);
        records.forget_before(20);
        assert_eq!((records.first, records.end(), records.get(8)), (8, 8, None));
    }
}
