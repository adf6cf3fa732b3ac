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

/// A set of heirs that begins, as they are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beginning {
    /// The set.
    pub set: SetId,
    /// The records that the client may lack.
    pub records: Records,
    /// Sets by which others may take over.
    earlier: Vec<Retiring>,
    /// Sets in which heirs may be that have not heard of this one.
    before: Vec<SetId>,
}

/// The records of a response, as an heir knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    set: SetId,
    promised: Ballot,
    records: Records,
    /// As in [`Beginning`], and those of the earlier sets that this heir has left for this one.
    earlier: Vec<Retiring>,
    before: Vec<SetId>,
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
    pub fn new(begins: Beginning) -> Self {
        let Beginning { set, records, earlier, before } = begins;
        Replica { set, promised: set.owner, records, earlier, before, left: Vec::new() }
    }

    /// The records.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The owner that this heir hears of no earlier one than.
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// Whether this set has begun in the place of that one, and a member that is still in that one has not heard of it.
    pub fn follows(&self, set: SetId) -> bool {
        self.before.contains(&set)
    }

    /// Another set begins in the place of this one, which this heir leaves, unless it has promised a third node to hear of no
    /// other owner; the earlier sets that it has left.
    pub fn begin(&mut self, begins: Beginning) -> Result<Vec<SetId>, Refused> {
        let set = begins.set;
        if set.owner < self.promised || set <= self.set {
            return Err(Refused);
        }
        let this = self.has_promised_only(set.owner).then_some(self.set);
        let mut left = std::mem::take(&mut self.left);
        left.extend(this);
        left.retain(|left| begins.earlier.iter().any(|retiring| retiring.set == *left));
        *self = Replica { left: left.clone(), ..Replica::new(begins) };
        Ok(left)
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
    pub fn promise(&mut self, set: SetId, before: &[SetId], by: Ballot) -> Result<Promise, Refused> {
        let has_promised_only = self.has_promised_only(by) || self.promised == set.owner;
        let is_behind = before.contains(&self.set) && has_promised_only;
        if set != self.set && !is_behind || by < self.promised {
            return Err(Refused);
        }
        self.promised = by;
        let records = (!is_behind).then(|| self.records.clone());
        Ok(Promise { records, earlier: self.earlier.clone(), left: self.left.clone() })
    }

    /// Whether this owner, which is the set's or has taken over by it, may end the set; the sets that this heir has left then.
    pub fn leave(&self, set: SetId, by: Ballot) -> Result<Vec<SetId>, Refused> {
        let may_end = set == self.set && self.has_promised_only(by);
        may_end.then(|| self.left.iter().copied().chain([set]).collect()).ok_or(Refused)
    }
}

/// What remains of an heir that is in no set any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    promised: Ballot,
    /// The last set that it has been in, if its owner has ended that. Of any other one it may have forgotten records.
    left: Option<SetId>,
}

impl Departed {
    /// Of an heir that has forgotten its set.
    pub fn evicted(replica: &Replica) -> Self {
        Departed { promised: replica.promised, left: None }
    }

    /// Of an heir whose set its owner has ended.
    pub fn left(replica: &Replica) -> Self {
        Departed { promised: replica.promised, left: Some(replica.set) }
    }

    /// The owner that it hears of no earlier one than.
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// Whether there is something to keep in mind.
    pub fn is_nothing(&self) -> bool {
        *self == Departed::default()
    }

    /// As [`Replica::promise`]: it has not heard that a set has begun behind the one that it was in, and will not.
    pub fn promise(&mut self, before: &[SetId], by: Ballot) -> Result<Promise, Refused> {
        let left = self.left.filter(|left| before.contains(left)).ok_or(Refused)?;
        if by < self.promised {
            return Err(Refused);
        }
        self.promised = by;
        Ok(Promise { records: None, earlier: Vec::new(), left: vec![left] })
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
    before: Vec<SetId>,
    promises: Vec<(String, Promise)>,
}

impl TakeOver {
    /// Begins with the promise of the heir itself. `nonce` is random.
    pub fn begin(mut replica: Replica, heirs: &[String], me: &str, nonce: u64) -> Option<Self> {
        let by = replica.promised.after(nonce);
        let own = replica.promise(replica.set, &[], by).ok()?;
        let promises = vec![(me.to_owned(), own)];
        let (me, quorums) = (me.to_owned(), Quorums::of(heirs.len())?);
        let Replica { set, earlier, before, .. } = replica;
        Some(TakeOver { set, by, me, heirs: heirs.to_vec(), quorums, earlier, before, promises })
    }

    /// The set, and the number of the take-over.
    pub fn id(&self) -> (SetId, Ballot) {
        (self.set, self.by)
    }

    /// Sets in which heirs may be that have not heard of this one.
    pub fn before(&self) -> &[SetId] {
        &self.before
    }

    /// Hears the promise of another heir.
    pub fn hear(&mut self, heir: &str, promise: Promise) {
        if self.promises.iter().all(|(name, _)| name != heir) {
            self.promises.push((heir.to_owned(), promise));
        }
    }

    /// An heir has promised this take-over; if that is a later one, this one begins anew with a number after it.
    pub fn hear_refused(&mut self, promised: Ballot, nonce: u64) -> bool {
        let is_later = promised > self.by;
        if is_later {
            self.by = promised.after(nonce);
            self.promises.retain(|(name, _)| *name == self.me);
        }
        is_later
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
        owner.before.clone_from(&self.before);
        owner.before.push(self.set);
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
    /// Sets in which an heir may still be, the latest last.
    before: Vec<SetId>,
    /// Number before which records may go out.
    released: u64,
}

#[derive(Clone, Debug)]
struct Heirs {
    set: SetId,
    quorums: Quorums,
    /// Number behind the last record that each of them knows; None of one that has not heard of the set.
    known: Vec<(String, Option<u64>)>,
}

/// Sets that are remembered because heirs may be in them.
const BEFORE: usize = 32;

impl Default for Owner {
    fn default() -> Self {
        Owner::first(Records::default())
    }
}

impl Owner {
    fn new(ballot: Ballot, records: Records, released: u64) -> Self {
        Owner { ballot, sets: 0, records, heirs: None, retiring: Vec::new(), before: Vec::new(), released }
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

    /// The current set, for its heirs.
    pub fn beginning(&self) -> Option<Beginning> {
        Some(Beginning {
            set: self.set()?,
            records: self.records.clone(),
            earlier: self.retiring.clone(),
            before: self.before.clone(),
        })
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
            if known.iter().all(|(_, end)| end.is_some()) {
                self.before.clear();
            }
            self.before.drain(..(self.before.len() + 1).saturating_sub(BEFORE));
            self.before.push(set);
            let heirs = known.into_iter().map(|(name, _)| name).collect();
            self.retiring.push(Retiring { set, heirs, left: BTreeSet::new(), needed: quorums.to_retire() });
        }
        if let Some(quorums) = Quorums::of(names.len()) {
            self.sets += 1;
            let set = SetId { owner: self.ballot, number: self.sets };
            let known = names.iter().map(|name| (name.clone(), None)).collect();
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
            *known = Some(end).max(*known);
        }
        self.settle();
    }

    /// An heir has left sets.
    pub fn hear_left(&mut self, heir: &str, sets: &[SetId]) {
        sets.iter().for_each(|set| self.leaves(heir, *set));
        self.settle();
    }

    fn leaves(&mut self, heir: &str, set: SetId) {
        if let Some(retiring) = self.retiring.iter_mut().find(|retiring| retiring.set == set) {
            retiring.leaves(heir);
        }
    }

    /// Whether so many heirs have heard of the current set as have to know a record before it goes out.
    pub fn is_heard(&self) -> bool {
        let have_heard = |heirs: &Heirs| heirs.known.iter().filter(|(_, end)| end.is_some()).count();
        self.heirs.as_ref().is_none_or(|heirs| have_heard(heirs) >= heirs.quorums.to_send())
    }

    /// Whether records can go out if so many heirs of the current set hear of them.
    pub fn can_send_with(&self, heirs: usize) -> bool {
        self.heirs.as_ref().is_some_and(|of| heirs >= of.quorums.to_send())
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
                let mut known: Vec<u64> = heirs.known.iter().map(|(_, end)| end.unwrap_or(0)).collect();
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
        Begin { begins: Beginning, heirs: Vec<String> },
        Add { set: SetId, records: Records, is_only: bool },
        Leave { set: SetId, by: Ballot },
        Known { heir: usize, set: SetId, end: u64, left: Vec<SetId> },
        Left { heir: usize, left: Vec<SetId> },
        Prepare { set: SetId, before: Vec<SetId>, by: Ballot },
        Refused { set: SetId, promised: Ballot },
        Newer { of: SetId, heirs: Vec<String>, replica: Replica },
        Promised { heir: usize, set: SetId, by: Ballot, promise: Promise },
    }

    struct Node {
        /// With the heirs of the set.
        replica: Option<(Replica, Vec<String>)>,
        departed: Departed,
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
            let departed = Departed::default();
            let node = |_| Node { replica: None, departed, owner: None, sent: 0, taking: None };
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
            let begins = owner.beginning();
            let to_leave = owner.to_leave();
            for (heir, set, by) in to_leave {
                self.say(node, heir.parse().unwrap(), Message::Leave { set, by });
            }
            if let Some(begins) = begins {
                for heir in heirs {
                    let (begins, heirs) = (begins.clone(), names.clone());
                    self.say(node, heir, Message::Begin { begins, heirs });
                }
            }
            self.send(node);
        }

        /// A node has no room for a response.
        fn evict(&mut self, node: usize) {
            if let Some((replica, _)) = self.nodes[node].replica.take() {
                self.nodes[node].departed = Departed::evicted(&replica);
            }
        }

        /// An heir restarts.
        fn restart(&mut self, node: usize) {
            if self.nodes[node].owner.is_none() {
                (self.nodes[node].replica, self.nodes[node].taking) = (None, None);
                self.nodes[node].departed = Departed::default();
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
            self.nodes[node].taking = Some(taking);
            self.ask(node);
        }

        fn ask(&mut self, node: usize) {
            let Some(taking) = &self.nodes[node].taking else { return };
            let (set, by) = taking.id();
            let before = taking.before().to_vec();
            let others: Vec<usize> =
                taking.heirs.iter().map(|heir| heir.parse().unwrap()).filter(|heir| *heir != node).collect();
            for heir in others {
                let before = before.clone();
                self.say(node, heir, Message::Prepare { set, before, by });
            }
        }

        fn deliver(&mut self, (from, to, message): (usize, usize, Message)) {
            match message {
                Message::Begin { begins, heirs } => {
                    let (set, end) = (begins.set, begins.records.end());
                    // Who has the response is no heir of it.
                    let Node { owner, taking, departed, .. } = &self.nodes[to];
                    if owner.is_some() || taking.is_some() || set.owner < departed.promised {
                        return;
                    }
                    self.nodes[to].departed = Departed::default();
                    let left = match &mut self.nodes[to].replica {
                        None => {
                            self.nodes[to].replica = Some((Replica::new(begins), heirs));
                            Vec::new()
                        }
                        Some((replica, of)) => match replica.begin(begins) {
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
                        self.say(to, from, Message::Known { heir: to, set, end, left: Vec::new() });
                    }
                }
                Message::Leave { set, by } => {
                    let Some((replica, _)) = &self.nodes[to].replica else { return };
                    if let Ok(left) = replica.leave(set, by) {
                        self.nodes[to].departed = Departed::left(replica);
                        self.nodes[to].replica = None;
                        self.say(to, from, Message::Left { heir: to, left });
                    }
                }
                Message::Known { heir, set, end, left } => {
                    let Some(owner) = &mut self.nodes[to].owner else { return };
                    owner.hear_known(&World::name(heir), set, end);
                    owner.hear_left(&World::name(heir), &left);
                    self.send(to);
                }
                Message::Left { heir, left } => {
                    let Some(owner) = &mut self.nodes[to].owner else { return };
                    owner.hear_left(&World::name(heir), &left);
                    self.send(to);
                }
                Message::Prepare { set, before, by } => {
                    let Node { replica, departed, .. } = &mut self.nodes[to];
                    let Some((replica, heirs)) = replica else {
                        if let Ok(promise) = departed.promise(&before, by) {
                            self.say(to, from, Message::Promised { heir: to, set, by, promise });
                        }
                        return;
                    };
                    if let Ok(promise) = replica.promise(set, &before, by) {
                        self.say(to, from, Message::Promised { heir: to, set, by, promise });
                    } else if replica.follows(set) {
                        let (heirs, replica) = (heirs.clone(), replica.clone());
                        self.say(to, from, Message::Newer { of: set, heirs, replica });
                    } else {
                        let promised = replica.promised();
                        self.say(to, from, Message::Refused { set, promised });
                    }
                }
                Message::Refused { set, promised } => {
                    self.made += 1;
                    let Node { taking: Some(taking), .. } = &mut self.nodes[to] else { return };
                    if taking.set == set && taking.hear_refused(promised, self.made) {
                        self.ask(to);
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
        let begins =
            |set| Beginning { set, records: Records::default(), earlier: Vec::new(), before: Vec::new() };
        let mut replica = Replica::new(begins(set(1)));
        let later = Ballot::default().after(1);
        assert_eq!(replica.promise(set(2), &[], later), Err(Refused), "another set");
        assert!(replica.promise(set(1), &[], later).is_ok() && replica.promise(set(1), &[], later).is_ok());
        assert_eq!(replica.promise(set(1), &[], Ballot::default()), Err(Refused));
        assert_eq!(replica.begin(begins(set(2))), Err(Refused));
        assert_eq!(replica.add(set(1), 0, &[]), Err(Refused));
        assert_eq!(replica.leave(set(1), Ballot::default()), Err(Refused));
        assert_eq!(replica.leave(set(1), later), Ok(vec![set(1)]));
        let of_later = SetId { owner: later, number: 1 };
        assert_eq!(replica.begin(begins(of_later)), Ok(Vec::new()));
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The owner has told `a` of the second set, and that it is the only one, and `b` of the first one.
    #[test]
    fn who_has_not_heard_of_the_last_set_promises() {
        let heirs = names(&["a", "b"]);
        let mut owner = Owner::default();
        owner.set_heirs(&heirs);
        let first = owner.set().unwrap();
        let [mut a, mut b] = ["a", "b"].map(|name| {
            owner.hear_known(name, first, 0);
            Replica::new(owner.beginning().unwrap())
        });
        owner.set_heirs(&heirs);
        let second = owner.set().unwrap();
        assert_eq!(a.begin(owner.beginning().unwrap()), Ok(vec![first]));
        owner.hear_left("a", &[first]);
        assert!(owner.is_only());
        a.is_only();
        let mut taking = TakeOver::begin(a.clone(), &heirs, "a", 1).unwrap();
        let (set, by) = taking.id();
        assert_eq!((set, taking.finish().is_none()), (second, true));
        taking.hear("b", b.clone().promise(set, taking.before(), by).unwrap());
        assert!(taking.finish().is_some());
        // If `b` is the one that takes over, it hears of the second set.
        let taking = TakeOver::begin(b.clone(), &heirs, "b", 1).unwrap();
        let (set, by) = taking.id();
        assert_eq!(a.promise(set, taking.before(), by), Err(Refused));
        assert!(a.follows(set) && !b.follows(second));
        assert_eq!(b.begin(owner.beginning().unwrap()), Ok(Vec::new()));
    }

    /// The owner has ended the first set, and has told `a` alone of the second one.
    #[test]
    fn who_has_left_the_set_before_promises() {
        let heirs = names(&["a", "b"]);
        let mut owner = Owner::default();
        owner.set_heirs(&heirs);
        let b = Replica::new(owner.beginning().unwrap());
        owner.set_heirs(&[]);
        let (mut departed, mut forgotten) = (Departed::left(&b), Departed::evicted(&b));
        owner.set_heirs(&heirs);
        let a = Replica::new(owner.beginning().unwrap());
        let mut taking = TakeOver::begin(a.clone(), &heirs, "a", 1).unwrap();
        let (_, by) = taking.id();
        assert_eq!(departed.promise(&[], by), Err(Refused), "it may have been in the second set");
        assert_eq!(forgotten.promise(taking.before(), by), Err(Refused));
        assert_eq!(Departed::left(&a).promise(taking.before(), by), Err(Refused));
        taking.hear("b", departed.promise(taking.before(), by).unwrap());
        assert!(taking.finish().is_some());
        assert_eq!(departed.promise(taking.before(), Ballot::default()), Err(Refused));
        assert_eq!(departed.promised(), by);
    }

    /// The owner dies before it is sure that nobody can take over by its first sets, and so does the heir that has promised the
    /// take-over.
    #[test]
    fn an_heir_says_of_all_sets_that_it_has_left_them() {
        let heirs = names(&["a", "b", "c"]);
        let mut owner = Owner::default();
        let mut begin = || {
            owner.set_heirs(&heirs);
            owner.beginning().unwrap()
        };
        let mut a = Replica::new(begin());
        let [mut b, mut c] = [a.clone(), a.clone()];
        for _ in 0..2 {
            let begins = begin();
            for heir in [&mut a, &mut b, &mut c] {
                heir.begin(begins.clone()).unwrap();
            }
        }
        let mut taking = TakeOver::begin(a, &heirs, "a", 1).unwrap();
        let (set, by) = taking.id();
        taking.hear("b", b.promise(set, taking.before(), by).unwrap());
        let mut owner = taking.finish().unwrap();
        owner.set_heirs(&names(&["b", "c"]));
        c.begin(owner.beginning().unwrap()).unwrap();
        owner.set_heirs(&[]);
        for (_, set, by) in owner.to_leave().into_iter().filter(|(name, ..)| name == "c") {
            owner.hear_left("c", &c.leave(set, by).unwrap_or_default());
        }
        assert!(owner.is_only(), "{:?}", owner.to_leave());
    }

    /// One that has been promised a take-over has died.
    #[test]
    fn a_take_over_that_is_late_begins_anew() {
        let heirs = names(&["a", "b", "c"]);
        let mut owner = Owner::default();
        owner.set_heirs(&heirs);
        let replica = Replica::new(owner.beginning().unwrap());
        let mut b = replica.clone();
        let (set, dead) = TakeOver::begin(replica.clone(), &heirs, "c", 9).unwrap().id();
        assert!(b.promise(set, &[], dead).is_ok());
        let mut taking = TakeOver::begin(replica, &heirs, "a", 1).unwrap();
        assert_eq!(b.promise(set, &[], taking.id().1), Err(Refused));
        assert!(taking.hear_refused(b.promised(), 2) && !taking.hear_refused(b.promised(), 3));
        taking.hear("b", b.promise(set, &[], taking.id().1).unwrap());
        assert!(taking.finish().is_some());
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
