//! Responses over TLS, whose records wait until their heirs know of them (docs/decisions/0052).

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use log::debug;
use switchback_resume::{Answer, Ask, Flow, Message, Owner, Record, Sealed, Secret};
use switchback_tls::endpoint::{InsuredResponse, Insurer, Peer, Policy, Snapshot};
use switchback_wire::{bytes_of, sb_heirs};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::heirs::HEIRS_OVER_TLS;
use super::{BUDGET, Insurance, lock, may_be_heir, wire};

/// Memory that the list of a response's records is counted as, in bytes.
const OF_RECORDS: usize = 8 << 10;
/// Time for which heirs that may be dead are waited for when nobody else does.
const ENDING: Duration = Duration::from_secs(60);

/// A connection, and its origin.
pub(super) type Id = (Flow, u32);

/// The insured responses over TLS, and those of other nodes about which heirs are asked.
#[derive(Default)]
pub(super) struct Policies {
    by_id: Mutex<HashMap<Id, Arc<Covered>>>,
    cost: AtomicUsize,
    awaited: Mutex<HashMap<Id, UnboundedSender<(String, Answer)>>>,
    /// Responses that have been left to heirs, none of which has gone on yet.
    left: Mutex<HashSet<Id>>,
}

impl Policies {
    pub(super) fn len(&self) -> usize {
        lock(&self.by_id).len()
    }

    /// Hears an heir.
    pub(super) fn hear(&self, heir: &str, id: Id, answer: Answer) {
        match answer {
            Answer::Known { .. } | Answer::Left(_) => {
                let covered = lock(&self.by_id).get(&id).cloned();
                covered.iter().for_each(|covered| covered.hear(heir, &answer));
            }
            Answer::Promised(..) | Answer::Newer { .. } | Answer::Refused(..) | Answer::Insured => {
                if let Some(answers) = lock(&self.awaited).get(&id) {
                    // It may be over.
                    let _ = answers.send((heir.to_owned(), answer));
                }
            }
        }
    }

    /// Where answers of heirs about a response come that another node has had.
    pub(super) fn await_answers(&self, id: Id) -> UnboundedReceiver<(String, Answer)> {
        let (to, answers) = unbounded_channel();
        lock(&self.awaited).insert(id, to);
        answers
    }

    /// Ends that.
    pub(super) fn stop_awaiting(&self, id: &Id) {
        lock(&self.awaited).remove(id);
    }

    /// Another node has gone on with a response.
    pub(super) fn lose(&self, id: &Id) {
        lock(&self.left).remove(id);
        if let Some(covered) = self.remove(id) {
            lock(&covered.state).stage = Stage::Lost;
            covered.wake();
        }
    }

    /// Leaves all responses to their heirs, of which `mute` has the program keep the agent's sockets from their clients.
    pub(super) fn leave(&self, mute: impl Fn(&Id) -> bool) {
        let all: Vec<Arc<Covered>> = lock(&self.by_id).values().cloned().collect();
        for covered in all {
            let mut state = lock(&covered.state);
            if state.stage != Stage::Open || state.heirs.is_empty() || !mute(&covered.id) {
                continue;
            }
            state.stage = Stage::Lost;
            wake(&mut state);
            let (heirs, (flow, origin)) = (state.record.heirs.clone(), covered.id);
            drop(state);
            self.remove(&covered.id);
            lock(&self.left).insert(covered.id);
            lock(&covered.insurance.0.heirs).say(&heirs, &Message::Bequeathed(flow, origin));
        }
    }

    /// Number of responses that have been left to heirs, none of which has gone on yet.
    pub(super) fn left(&self) -> usize {
        lock(&self.left).len()
    }

    /// Finds other heirs, when nodes have come or gone.
    pub(super) fn keep_heirs(&self) {
        let all: Vec<Arc<Covered>> = lock(&self.by_id).values().cloned().collect();
        all.iter().for_each(|covered| covered.keep_heirs());
    }

    fn add(&self, covered: &Arc<Covered>) {
        self.cost.fetch_add(covered.cost, Ordering::Relaxed);
        if let Some(before) = lock(&self.by_id).insert(covered.id, Arc::clone(covered)) {
            self.cost.fetch_sub(before.cost, Ordering::Relaxed);
        }
    }

    fn remove(&self, id: &Id) -> Option<Arc<Covered>> {
        let covered = lock(&self.by_id).remove(id)?;
        self.cost.fetch_sub(covered.cost, Ordering::Relaxed);
        Some(covered)
    }
}

/// An insured response.
pub(super) struct Covered {
    insurance: Insurance,
    id: Id,
    peers: Vec<Peer>,
    cost: usize,
    state: Mutex<State>,
}

struct State {
    owner: Owner,
    record: Record,
    secret: Secret,
    /// The heirs, and the connections by which they have been told.
    heirs: Vec<(String, u64)>,
    /// Heirs know that nobody can take over by an earlier set.
    is_only: bool,
    /// Number behind the last record that they have been told of.
    told: u64,
    stage: Stage,
    task: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Ending(Instant),
    /// Another node has gone on with it.
    Lost,
}

impl Insurance {
    /// See [`switchback_tls::endpoint::Insurer::insure`].
    pub(super) fn insure_over_tls(
        &self,
        response: InsuredResponse,
        owner: Owner,
    ) -> Result<Arc<dyn Policy>, &'static str> {
        let InsuredResponse {
            flow: (client, vip),
            service,
            peers,
            past,
            request,
            response,
            proof,
            keeps,
            state,
        } = response;
        let flow = Flow { client, vip };
        let owned = self.owned(&flow).ok_or("no_heir")?;
        let record = Record {
            flow,
            origin: owned.origin,
            next: state.next,
            generation: owned.generation,
            requests: owned.requests,
            mss: owned.mss,
            options: owned.options,
            wscale: owned.wscale,
            keeps,
            seq: owner.records().seq,
            sent: 0,
            request,
            response,
            proof,
            owner: self.0.name.clone(),
            heirs: Vec::new(),
            past,
        };
        let secret = Secret { service, state: state.moved };
        let cost = record.cost() + secret.state.len() + OF_RECORDS;
        let must_wait = !owner.is_only();
        let state = State {
            owner,
            record,
            secret,
            heirs: Vec::new(),
            is_only: true,
            told: 0,
            stage: Stage::Open,
            task: None,
        };
        let id = (flow, owned.origin);
        let covered = Covered { insurance: self.clone(), id, peers, cost, state: Mutex::new(state) };
        let covered = Arc::new(covered);
        let policies = &self.0.policies;
        if policies.cost.load(Ordering::Relaxed) + cost > BUDGET && !must_wait {
            return Err("memory");
        }
        policies.add(&covered);
        covered.keep_heirs();
        let has_heirs = !lock(&covered.state).heirs.is_empty();
        match has_heirs {
            true => lock(&self.0.counts).insured += 1,
            false if must_wait => self.is_uninsurable("no_heir"),
            false => {
                policies.remove(&id);
                return Err("no_heir");
            }
        }
        Ok(covered)
    }
}

impl Covered {
    /// Has heirs that can be reached.
    fn keep_heirs(&self) {
        let mut state = lock(&self.state);
        match state.stage {
            Stage::Open => {}
            Stage::Ending(since) if since.elapsed() > ENDING => {
                drop(state);
                self.insurance.0.policies.remove(&self.id);
                return;
            }
            Stage::Ending(_) | Stage::Lost => return,
        }
        let dead = lock(&self.insurance.0.dead).clone();
        let chosen = {
            let heirs = lock(&self.insurance.0.heirs);
            let may_be = |peer: &&Peer| may_be_heir(peer, &dead, &state.record.past);
            // Who has been told by another connection may have restarted since, and is like any other.
            let known = match state.heirs.is_empty() {
                true => state.record.heirs.clone(),
                false => state
                    .heirs
                    .iter()
                    .filter(|(name, by)| heirs.connection(name) == Some(*by))
                    .map(|(name, _)| name.clone())
                    .collect(),
            };
            let names = heirs.choose(self.id.0, HEIRS_OVER_TLS, known, self.peers.iter().filter(may_be));
            let by = |name: String| heirs.connection(&name).map(|connection| (name, connection));
            names.into_iter().filter_map(by).collect::<Vec<_>>()
        };
        let chosen = if chosen.len() < 2 { those_left(&state, &chosen) } else { chosen };
        match chosen == state.heirs {
            true => self.say_leave(&state),
            false => self.change_heirs(&mut state, chosen),
        }
    }

    /// Tells heirs of earlier sets that are in none any more. The others leave one for the next.
    fn say_leave(&self, state: &State) {
        let (flow, origin) = self.id;
        let lines = lock(&self.insurance.0.heirs);
        for (name, set, by) in state.owner.to_leave() {
            if !state.record.heirs.contains(&name) {
                lines.say(&[name], &Message::Ask(flow, origin, Ask::Leave(set, by)));
            }
        }
    }

    fn change_heirs(&self, state: &mut State, heirs: Vec<(String, u64)>) {
        let names: Vec<String> = heirs.iter().map(|(name, _)| name.clone()).collect();
        state.heirs = heirs;
        state.owner.set_heirs(&names);
        state.is_only = state.owner.is_only();
        state.told = state.owner.records().end();
        debug!("the response to {} has the heirs {names:?}", self.id.0.client);
        state.record.heirs = names;
        state.record.seq = state.owner.records().seq;
        let (flow, origin) = self.id;
        let key = wire(&flow);
        // Without an entry the client hears of this agent's end. What cannot be told leaves the flow uninsured in that case.
        let _ = match state.owner.beginning() {
            Some(begins) => {
                let (record, secret) = (Box::new(state.record.clone()), Box::new(state.secret.clone()));
                self.say(state, &Ask::Begin { begins, record, secret });
                let has = sb_heirs { origin, over_tls: 1, ..Default::default() };
                self.insurance.0.have_heirs.update(bytes_of(&key), bytes_of(&has), MapFlags::ANY)
            }
            None => self.insurance.0.have_heirs.delete(bytes_of(&key)),
        };
        self.say_leave(state);
        wake(state);
    }

    fn hear(&self, heir: &str, answer: &Answer) {
        let mut state = lock(&self.state);
        match answer {
            Answer::Known { set, end, left } => {
                state.owner.hear_known(heir, *set, *end);
                state.owner.hear_left(heir, left);
            }
            Answer::Left(left) => state.owner.hear_left(heir, left),
            Answer::Promised(..) | Answer::Newer { .. } | Answer::Refused(..) | Answer::Insured => {}
        }
        self.say_more(&mut state);
        let has_ended = has_ended(&state);
        wake(&mut state);
        drop(state);
        if has_ended {
            self.insurance.0.policies.remove(&self.id);
        }
    }

    /// Tells heirs of the records that they have not been told of. While they have not answered, more are gathered for the next
    /// message: it costs more than the records in it.
    fn say_more(&self, state: &mut State) {
        let State { owner, is_only, told, .. } = state;
        let (Some(set), records) = (owner.set(), owner.records()) else { return };
        let is_news = owner.is_only() != *is_only;
        let have_answered = owner.is_heard() && owner.released() >= *told;
        if !is_news && (!have_answered || records.end() == *told) {
            return;
        }
        let first = records.first.max(*told);
        (*is_only, *told) = (owner.is_only(), records.end());
        let sealed = records.sealed[(first - records.first) as usize..].to_vec();
        let (is_only, has) = (*is_only, records.first);
        self.say(state, &Ask::Add { set, is_only, has, first, sealed });
    }

    /// Tells all heirs, by the connections by which they have been told of the response.
    fn say(&self, state: &State, ask: &Ask) {
        let (flow, origin) = self.id;
        let lines = lock(&self.insurance.0.heirs);
        for (name, by) in &state.heirs {
            lines.say_by(name, *by, Message::Ask(flow, origin, ask.clone()));
        }
    }

    fn wake(&self) {
        wake(&mut lock(&self.state));
    }
}

fn wake(state: &mut State) {
    state.task.take().into_iter().for_each(Waker::wake);
}

/// The heirs, if records can go out by those of them that have been heard: the others may be back in a moment. Otherwise none.
fn those_left(state: &State, heard: &[(String, u64)]) -> Vec<(String, u64)> {
    let heard = state.heirs.iter().filter(|heir| heard.contains(heir)).count();
    if state.owner.can_send_with(heard) { state.heirs.clone() } else { Vec::new() }
}

fn has_ended(state: &State) -> bool {
    matches!(state.stage, Stage::Ending(_)) && state.owner.is_only()
}

impl Policy for Covered {
    fn add(&self, sealed: &[Sealed], has: u64) {
        let mut state = lock(&self.state);
        state.owner.forget_before(has);
        sealed.iter().for_each(|sealed| state.owner.add(*sealed));
        self.say_more(&mut state);
    }

    fn poll_released(&self, cx: &mut Context<'_>, beyond: u64) -> Poll<io::Result<u64>> {
        let mut state = lock(&self.state);
        match state.owner.released() {
            _ if state.stage == Stage::Lost => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            released if released > beyond => Poll::Ready(Ok(released)),
            _ => {
                state.task = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn renew(&self, Snapshot { next, moved }: Snapshot) {
        let mut state = lock(&self.state);
        state.record.next = next;
        state.secret.state = moved;
        let heirs = state.heirs.clone();
        self.change_heirs(&mut state, heirs);
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        if state.stage != Stage::Open {
            return;
        }
        state.stage = Stage::Ending(Instant::now());
        self.change_heirs(&mut state, Vec::new());
        let has_ended = has_ended(&state);
        drop(state);
        if has_ended {
            self.insurance.0.policies.remove(&self.id);
        }
    }

    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.stage == Stage::Lost || has_ended(&state) {
            return Poll::Ready(());
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }
}
