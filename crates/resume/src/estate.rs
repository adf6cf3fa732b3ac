//! The responses of other nodes with which this one can go on.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::fingerprint::{Fingerprint, Key};
use crate::quorum::{Ballot, Beginning, Departed, Refused, Replica, SetId};
use crate::record::{Answer, Ask, Flow, Record, Resumable, Secret};

/// Time between two offers of a response.
const AGAIN: Duration = Duration::from_millis(100);
/// Connections of which something is kept without a record.
const DEPARTED: usize = 1 << 16;
/// Time for which a response is offered.
const OFFERED: Duration = Duration::from_secs(15);

/// A response that this node offers to go on with.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// What is known of it.
    pub record: &'a Record,
    /// Its node lives, but not its server.
    pub gone: bool,
    /// It is one over TLS.
    pub over_tls: bool,
}

/// Records of other nodes, within a budget: the oldest give way.
#[derive(Debug)]
pub struct Estate {
    name: String,
    budget: usize,
    cost: usize,
    /// Records that gave way.
    evicted: u64,
    by_flow: HashMap<Flow, Kept>,
    by_age: BTreeMap<u64, Flow>,
    next: u64,
    /// Connections with these origins of which this node has no record any more.
    departed: HashMap<Flow, (u32, Departed)>,
}

#[derive(Debug)]
struct Kept {
    record: Record,
    /// Present if it is a response over TLS.
    held: Option<Held>,
    age: u64,
    /// Its server has gone, and its node has left it to its heirs.
    gone: bool,
    standing: Standing,
}

/// What is kept of a response over TLS.
#[derive(Debug)]
pub struct Held {
    /// See [`Secret`].
    pub secret: Secret,
    /// The records that may have gone out.
    pub replica: Replica,
}

impl Kept {
    fn cost(&self) -> usize {
        let held = self.held.as_ref().map_or(0, |Held { secret, replica }| {
            size_of::<Held>() + secret.state.len() + replica.records().cost()
        });
        self.record.cost() + held
    }
}

/// What has become of the offer of a response.
#[derive(Clone, Copy, Debug)]
enum Standing {
    /// Its node lives, or another heir is to offer it.
    Waiting,
    Offered {
        first: Instant,
        last: Instant,
    },
    /// Its client has all of it, as was found out then.
    Served(Instant),
}

impl Estate {
    /// No records, at the node with this name; `budget` is in bytes.
    pub fn new(name: &str, budget: usize) -> Self {
        Estate {
            name: name.to_owned(),
            budget,
            cost: 0,
            evicted: 0,
            by_flow: HashMap::new(),
            by_age: BTreeMap::new(),
            next: 0,
            departed: HashMap::new(),
        }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.by_flow.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_flow.is_empty()
    }

    /// Memory of all records, in bytes.
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// Records that have given way to later ones.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Keeps a record; the flows of those that give way.
    pub fn keep(&mut self, mut record: Record) -> Vec<Flow> {
        let flow = record.flow;
        // A fingerprint may have overtaken the record.
        if let (Some(before), Some(proof)) = (self.remove(&flow), &mut record.proof)
            && let Some(earlier) = before.record.proof.filter(|earlier| earlier.key == proof.key)
            && earlier.last.len > proof.last.len
        {
            proof.last = earlier.last;
        }
        self.insert(record, None)
    }

    fn insert(&mut self, record: Record, held: Option<Held>) -> Vec<Flow> {
        let flow = record.flow;
        let kept = Kept { record, held, age: self.next, gone: false, standing: Standing::Waiting };
        self.cost += kept.cost();
        self.by_age.insert(self.next, flow);
        self.by_flow.insert(flow, kept);
        self.next += 1;
        let mut gone = Vec::new();
        while self.cost > self.budget
            && let Some(oldest) = self.by_age.first_key_value().map(|(_, flow)| *flow)
        {
            let evicted = self.remove(&oldest);
            if let Some(Kept { record, held: Some(held), .. }) = evicted {
                self.keep_in_mind(oldest, record.origin, Departed::evicted(&held.replica));
            }
            self.evicted += 1;
            gone.push(oldest);
        }
        gone
    }

    /// Begins to keep a response over TLS; the answer, and the flows of those that give way.
    pub fn begin(&mut self, begins: Beginning, record: Record, secret: Secret) -> (Answer, Vec<Flow>) {
        let (set, end) = (begins.set, begins.records.end());
        if let Some(departed) = self.departed(&record.flow, record.origin)
            && set.owner() < departed.promised()
        {
            return (Answer::Refused(set, departed.promised()), Vec::new());
        }
        let known = self.kept(&record.flow, record.origin).and_then(|kept| kept.held.as_ref());
        let (replica, left) = match known.map(|held| held.replica.clone()) {
            None => (Replica::new(begins), Vec::new()),
            Some(mut replica) => match replica.begin(begins) {
                Ok(left) => (replica, left),
                Err(Refused) => return (Answer::Refused(set, replica.promised()), Vec::new()),
            },
        };
        self.remove(&record.flow);
        self.departed.remove(&record.flow);
        let gone = self.insert(record, Some(Held { secret, replica }));
        (Answer::Known { set, end, left }, gone)
    }

    /// Answers what is asked about a response over TLS. [`begin`](Self::begin) is for [`Ask::Begin`].
    pub fn answer(&mut self, flow: &Flow, origin: u32, ask: Ask) -> Answer {
        let (Ask::Begin { begins: Beginning { set, .. }, .. }
        | Ask::Add { set, .. }
        | Ask::Leave(set, _)
        | Ask::Promise { set, .. }) = ask;
        let known = self.by_flow.get_mut(flow).filter(|kept| kept.record.origin == origin);
        let Some(kept) = known else { return self.answer_without_record(flow, origin, set, ask) };
        let before = kept.cost();
        let Kept { record, held: Some(Held { secret, replica }), .. } = kept else {
            return Answer::Refused(set, Ballot::default());
        };
        let answered = match ask {
            Ask::Begin { .. } => Err(Refused),
            Ask::Add { is_only, has, first, sealed, .. } => replica.add(set, first, &sealed).map(|end| {
                replica.forget_before(has);
                if is_only {
                    replica.is_only();
                }
                Answer::Known { set, end, left: Vec::new() }
            }),
            Ask::Leave(_, by) => replica.leave(set, by).map(Answer::Left),
            Ask::Promise { before, by, .. } => match replica.promise(set, &before, by) {
                Ok(promise) => Ok(Answer::Promised(set, by, promise)),
                Err(Refused) if replica.follows(set) => Ok(Answer::Newer {
                    of: set,
                    record: Box::new(record.clone()),
                    secret: Box::new(secret.clone()),
                    replica: replica.clone(),
                }),
                Err(Refused) => Err(Refused),
            },
        };
        record.seq = replica.records().seq;
        let (promised, departed) = (replica.promised(), Departed::left(replica));
        self.cost = self.cost - before + kept.cost();
        if let Ok(Answer::Left(_)) = answered {
            self.remove(flow);
            self.keep_in_mind(*flow, origin, departed);
        }
        answered.unwrap_or(Answer::Refused(set, promised))
    }

    fn answer_without_record(&mut self, flow: &Flow, origin: u32, set: SetId, ask: Ask) -> Answer {
        let Some(departed) = self.departed(flow, origin) else {
            return Answer::Refused(set, Ballot::default());
        };
        if let Ask::Promise { before, by, .. } = ask
            && let Ok(promise) = departed.promise(&before, by)
        {
            return Answer::Promised(set, by, promise);
        }
        Answer::Refused(set, departed.promised())
    }

    fn departed(&mut self, flow: &Flow, origin: u32) -> Option<&mut Departed> {
        self.departed.get_mut(flow).filter(|(of, _)| *of == origin).map(|(_, departed)| departed)
    }

    fn keep_in_mind(&mut self, flow: Flow, origin: u32, departed: Departed) {
        if departed.is_nothing() {
            return;
        }
        if self.departed.len() >= DEPARTED
            && let Some(one) = self.departed.keys().next().copied()
        {
            self.departed.remove(&one);
        }
        self.departed.insert(flow, (origin, departed));
    }

    /// Whether there is a record of the flow.
    pub fn has(&self, flow: &Flow) -> bool {
        self.by_flow.contains_key(flow)
    }

    /// The secret of a response's fingerprints, if the record is of that connection.
    pub fn key(&self, flow: &Flow, origin: u32) -> Option<Key> {
        let kept = self.by_flow.get(flow).filter(|kept| kept.record.origin == origin)?;
        kept.record.proof.map(|proof| proof.key)
    }

    /// Notes the fingerprint of what has been sent of a response. An earlier one may come later.
    pub fn note(&mut self, flow: &Flow, origin: u32, fingerprint: Fingerprint) {
        if let Some(proof) = self.kept(flow, origin).and_then(|kept| kept.record.proof.as_mut())
            && fingerprint.len > proof.last.len
        {
            proof.last = fingerprint;
        }
    }

    /// Whether the fingerprint of so many bytes of a response, head and all, has not come yet.
    pub fn lacks_fingerprint(&self, flow: &Flow, sent: u64) -> bool {
        let Some(Kept { record, held: None, .. }) = self.by_flow.get(flow) else { return false };
        let Ok(Resumable::Again(repeatable, proof)) = record.resumable() else { return false };
        repeatable.head_len() as u64 + proof.last.len < sent
    }

    /// Forgets the response of a connection; true if there was one.
    pub fn over(&mut self, flow: &Flow, origin: u32) -> bool {
        let is_its = self.by_flow.get(flow).is_some_and(|kept| kept.record.origin == origin);
        is_its && self.remove(flow).is_some()
    }

    /// The node of a response leaves it to its heirs.
    pub fn inherit(&mut self, flow: &Flow, origin: u32) {
        if let Some(kept) = self.kept(flow, origin) {
            kept.gone = true;
        }
    }

    /// The client has all of the response. Its record is kept for a while: another switch may ask for the response, too.
    pub fn served(&mut self, flow: &Flow, origin: u32, now: Instant) {
        if let Some(kept) = self.kept(flow, origin) {
            kept.standing = Standing::Served(now);
        }
    }

    /// Forgets responses that their clients have had for long; their flows.
    pub fn forget_served(&mut self, now: Instant) -> Vec<Flow> {
        let is_past = |kept: &Kept| matches!(kept.standing, Standing::Served(since) if now.duration_since(since) > OFFERED);
        let past: Vec<Flow> =
            self.by_flow.iter().filter(|(_, kept)| is_past(kept)).map(|(flow, _)| *flow).collect();
        past.iter().for_each(|flow| drop(self.remove(flow)));
        past
    }

    /// Takes the response of a flow that this node has got.
    pub fn take(&mut self, flow: &Flow) -> Option<(Record, Option<Held>)> {
        self.remove(flow).map(|kept| (kept.record, kept.held))
    }

    fn kept(&mut self, flow: &Flow, origin: u32) -> Option<&mut Kept> {
        self.by_flow.get_mut(flow).filter(|kept| kept.record.origin == origin)
    }

    fn remove(&mut self, flow: &Flow) -> Option<Kept> {
        let kept = self.by_flow.remove(flow)?;
        self.by_age.remove(&kept.age);
        self.cost -= kept.cost();
        Some(kept)
    }

    /// The responses to be offered now: their nodes are dead, or have left them to their heirs, and all heirs before this one
    /// are dead.
    pub fn offers(&mut self, now: Instant, is_dead: impl Fn(&str) -> bool) -> Vec<Offer<'_>> {
        let Estate { name, by_flow, .. } = self;
        let due = by_flow.values_mut().filter_map(|kept| {
            let mut before = kept.record.heirs.iter().take_while(|heir| *heir != name);
            let is_lost = kept.gone || is_dead(&kept.record.owner);
            let is_to_offer = is_lost && before.all(|heir| is_dead(heir));
            let first = match kept.standing {
                Standing::Served(_) => return None,
                _ if !is_to_offer => {
                    kept.standing = Standing::Waiting;
                    return None;
                }
                Standing::Waiting => now,
                Standing::Offered { first, last } => {
                    let is_due = now.duration_since(last) >= AGAIN && now.duration_since(first) <= OFFERED;
                    is_due.then_some(first)?
                }
            };
            kept.standing = Standing::Offered { first, last: now };
            Some(Offer { record: &kept.record, gone: kept.gone, over_tls: kept.held.is_some() })
        });
        due.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::{Owner, Records, Sealed, TakeOver};
    use crate::record::Proof;

    fn record(port: u16, owner: &str, heirs: &[&str]) -> Record {
        let flow = Flow { client: ([198, 51, 100, 1], port).into(), vip: ([192, 0, 2, 100], 80).into() };
        Record {
            flow,
            origin: u32::from(port),
            next: 2,
            generation: 3,
            requests: 1,
            mss: 1460,
            options: 0,
            wscale: 0,
            keeps: true,
            seq: 4,
            sent: 5,
            request: vec![0; 100],
            response: vec![0; 100],
            proof: None,
            owner: owner.to_owned(),
            heirs: heirs.iter().map(|heir| (*heir).to_owned()).collect(),
            past: Vec::new(),
        }
    }

    #[test]
    fn the_oldest_give_way() {
        let cost = record(1, "n1", &["n2"]).cost();
        let mut estate = Estate::new("n2", 2 * cost);
        let flows: Vec<Flow> = (1..=3).map(|port| record(port, "n1", &["n2"]).flow).collect();
        assert!(estate.keep(record(1, "n1", &["n2"])).is_empty());
        assert!(estate.keep(record(2, "n1", &["n2"])).is_empty());
        // Told again, it is the latest.
        assert!(estate.keep(record(1, "n1", &["n2"])).is_empty());
        assert_eq!(estate.keep(record(3, "n1", &["n2"])), [flows[1]]);
        assert_eq!((estate.len(), estate.cost(), estate.evicted()), (2, 2 * cost, 1));
        assert!(!estate.over(&flows[0], 7), "another connection");
        assert!(estate.over(&flows[0], 1));
        assert!(estate.take(&flows[2]).is_some() && estate.take(&flows[2]).is_none());
        assert_eq!((estate.len(), estate.cost(), estate.is_empty()), (0, 0, true));
    }

    #[test]
    fn the_fingerprint_of_the_most_bytes_counts() {
        let mut estate = Estate::new("n2", 1 << 20);
        let (key, last) = (Key { k0: 1, k1: 2 }, Fingerprint { len: 100, value: 1 });
        let kept = Record { proof: Some(Proof { key, last }), ..record(1, "n1", &["n2"]) };
        let flow = kept.flow;
        estate.keep(kept);
        assert_eq!((estate.key(&flow, 1), estate.key(&flow, 7)), (Some(key), None));
        for (origin, len) in [(1, 90), (1, 120), (7, 150), (1, 110)] {
            estate.note(&flow, origin, Fingerprint { len, value: len });
        }
        let last = |estate: &mut Estate| estate.take(&flow).unwrap().0.proof.unwrap().last.len;
        let again = |len, key| Record {
            proof: Some(Proof { key, last: Fingerprint { len, value: len } }),
            ..record(1, "n1", &["n2"])
        };
        estate.keep(again(115, key));
        assert_eq!(last(&mut estate), 120, "it has overtaken the record");
        for (second, expected) in [(again(130, key), 130), (again(110, Key { k0: 7, ..key }), 110)] {
            estate.keep(again(120, key));
            estate.keep(second);
            assert_eq!(last(&mut estate), expected);
        }
    }

    #[test]
    fn what_a_client_has_may_be_under_no_fingerprint_yet() {
        let mut estate = Estate::new("n2", 1 << 20);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n";
        let proof = Proof { key: Key { k0: 1, k1: 2 }, last: Fingerprint { len: 100, value: 1 } };
        let repeated = Record {
            request: b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            response: head.to_vec(),
            proof: Some(proof),
            ..record(1, "n1", &["n2"])
        };
        let flow = repeated.flow;
        let lacks = |estate: &Estate, body| estate.lacks_fingerprint(&flow, head.len() as u64 + body);
        assert!(!lacks(&estate, 1), "there is no record");
        estate.keep(repeated.clone());
        assert_eq!((lacks(&estate, 100), lacks(&estate, 101)), (false, true));
        estate.note(&flow, 1, Fingerprint { len: 150, value: 2 });
        assert_eq!((lacks(&estate, 150), lacks(&estate, 151)), (false, true));
        estate.keep(Record { proof: None, ..repeated });
        assert!(!lacks(&estate, 500), "it is known by its validator");
    }

    #[test]
    fn a_response_is_offered_when_all_before_are_dead() {
        let mut estate = Estate::new("n3", 1 << 20);
        let start = Instant::now();
        estate.keep(record(1, "n1", &["n2", "n3"]));
        let count = |estate: &mut Estate, ms: u64, dead: &[&str]| {
            estate.offers(start + Duration::from_millis(ms), |name| dead.contains(&name)).len()
        };
        assert_eq!(count(&mut estate, 0, &[]), 0);
        assert_eq!(count(&mut estate, 0, &["n1"]), 0);
        assert_eq!(count(&mut estate, 0, &["n2"]), 0);
        assert_eq!(count(&mut estate, 0, &["n1", "n2"]), 1);
        assert_eq!(count(&mut estate, 99, &["n1", "n2"]), 0);
        assert_eq!(count(&mut estate, 100, &["n1", "n2"]), 1);
        assert_eq!(count(&mut estate, 15_001, &["n1", "n2"]), 0, "nobody has taken it");
        // Its server has gone.
        estate.inherit(&record(1, "n1", &[]).flow, 7);
        assert_eq!(count(&mut estate, 15_500, &[]), 0, "another connection");
        estate.inherit(&record(1, "n1", &[]).flow, 1);
        assert_eq!(count(&mut estate, 15_600, &[]), 0, "the first heir lives");
        assert_eq!(count(&mut estate, 15_600, &["n2"]), 1);
        estate.keep(record(1, "n1", &["n2", "n3"]));
        // The client has all of it.
        estate.served(&record(1, "n1", &[]).flow, 7, start);
        assert_eq!(count(&mut estate, 15_700, &["n1", "n2"]), 1, "another connection");
        estate.served(&record(1, "n1", &[]).flow, 1, start + Duration::from_millis(15_700));
        assert_eq!(count(&mut estate, 15_800, &["n1", "n2"]), 0);
        assert_eq!(count(&mut estate, 15_900, &[]) + count(&mut estate, 15_900, &["n1", "n2"]), 0);
        assert!(estate.forget_served(start + Duration::from_millis(30_000)).is_empty());
        assert_eq!(estate.forget_served(start + Duration::from_millis(30_701)).len(), 1);
        assert!(estate.is_empty());
        estate.keep(record(1, "n1", &["n2", "n3"]));
        // The node comes back, and dies again.
        assert_eq!(count(&mut estate, 16_000, &["n2"]), 0);
        assert_eq!(count(&mut estate, 17_000, &["n1", "n2"]), 1);
    }

    #[test]
    fn a_response_over_tls_is_asked_about() {
        let mut estate = Estate::new("n2", 1 << 20);
        let kept = record(1, "n1", &["n2", "n3"]);
        let (flow, bare) = (kept.flow, kept.cost());
        let mut owner = Owner::first(Records { seq: 7, overhead: 22, ..Records::default() });
        owner.set_heirs(&kept.heirs);
        let set = owner.set().unwrap();
        let refused = Answer::Refused(set, Ballot::default());
        let ask = |estate: &mut Estate, ask| estate.answer(&flow, 1, ask);
        assert_eq!(ask(&mut estate, Ask::Leave(set, Ballot::default())), refused.clone());
        let secret = Secret { service: "a".into(), state: vec![0; 100].into() };
        let begun = estate.begin(owner.beginning().unwrap(), kept.clone(), secret.clone());
        assert_eq!(begun, (Answer::Known { set, end: 0, left: Vec::new() }, Vec::new()));
        let cost = estate.cost();
        assert!(cost > bare + 100);
        let sealed = vec![Sealed { len: 10, tag: [0; 16], after: 0 }; 3];
        let add = |has| Ask::Add { set, is_only: true, has, first: 0, sealed: sealed.clone() };
        let known = Answer::Known { set, end: 3, left: Vec::new() };
        assert_eq!((ask(&mut estate, add(0)), ask(&mut estate, add(2))), (known.clone(), known));
        assert!(estate.cost() > cost);
        assert_eq!(estate.answer(&flow, 7, add(0)), refused, "another connection");
        let offered = estate.offers(Instant::now(), |name| name == "n1");
        assert_eq!((offered.len(), offered[0].over_tls, offered[0].record.seq), (1, true, 7 + 2 * 32));
        (0..9).for_each(|_| owner.add(sealed[0]));
        owner.set_heirs(&kept.heirs);
        let (next, begins) = (owner.set().unwrap(), owner.beginning().unwrap());
        let begun = estate.begin(begins, kept.clone(), secret.clone());
        assert_eq!(begun, (Answer::Known { set: next, end: 9, left: vec![set] }, Vec::new()));
        assert_eq!(estate.cost(), cost + 9 * size_of::<Sealed>());
        assert_eq!(ask(&mut estate, Ask::Leave(next, Ballot::default())), Answer::Left(vec![set, next]));
        assert_eq!((estate.len(), estate.cost()), (0, 0));
        // Of the next set it has not heard.
        owner.set_heirs(&kept.heirs);
        let begins = owner.beginning().unwrap();
        let mut taking = TakeOver::begin(Replica::new(begins.clone()), &kept.heirs, "n3", 1).unwrap();
        let (last, by) = taking.id();
        let before = taking.before().to_vec();
        let promised = ask(&mut estate, Ask::Promise { set: last, before, by });
        let Answer::Promised(_, _, promise) = promised else { panic!("{promised:?}") };
        taking.hear("n2", promise);
        assert!(taking.finish().is_some());
        let late = estate.begin(begins, kept, secret);
        assert_eq!(late, (Answer::Refused(last, by), Vec::new()));
    }
}
