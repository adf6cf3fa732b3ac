//! A model of who owns a flow, checked exhaustively within small bounds: two switches, two nodes, one flow.
//!
//! Messages arrive in any order, at any later step or never; a switch that waits sends its own again, so there are late
//! copies. The router gives each packet of the client to any switch. Switches forget everything at any step. A node dies at
//! any step and returns with nothing; the epoch of its clock, which tags cover, keeps messages to its earlier life away.
//! The rules are those of `docs/decisions/0038-generations.md`.

use std::collections::BTreeSet;

use stateright::{Checker, Model, Property};

const SWITCHES: usize = 2;
const NODES: usize = 2;
const ONE_OWNER: &str = "at most one node owns the flow";
/// The switch that has answered the SYN. The later one in the order of generations, which is the harder case.
const ANSWERED_SYN: usize = 1;

/// Number of a request on the flow, from 1 on. It stands for the sequence number where the request begins.
type Request = u8;
/// Life of a node, between two deaths.
type Life = u8;

/// Number of an adoption. A higher one is newer, and the default is before all. None is chosen twice: not by two
/// switches, nor by one in two attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Generation {
    counter: u8,
    switch: usize,
    attempt: u8,
}

impl Generation {
    /// That of the first dispatch, by the switch whose cookie the first request has.
    fn first(switch: usize) -> Self {
        Generation { counter: 1, switch, attempt: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ToNode {
    Adopt {
        request: Request,
        generation: Generation,
    },
    Forward {
        request: Request,
        generation: Generation,
    },
    /// `next` is the generation of the adoption that is to follow.
    Release {
        request: Request,
        generation: Generation,
        next: Generation,
    },
    /// Question who owns the flow. A node that does not promises to accept no adoption before `promise`.
    Probe {
        promise: Generation,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum FromNode {
    Owned {
        generation: Generation,
    },
    /// `promised` is that of the PROBE that this answers; `newest` the newest generation that the node has owned, released
    /// the flow for, or promised; `next` the first request that it has not had.
    Unowned {
        promised: Generation,
        newest: Generation,
        next: Request,
    },
    /// Answer to RELEASE, which it repeats.
    Released {
        request: Request,
        next: Generation,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Content {
    ToNode(ToNode),
    FromNode(FromNode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    switch: usize,
    node: usize,
    life: Life,
    content: Content,
}

/// The flow at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct AtNode {
    life: Life,
    is_dead: bool,
    owns: bool,
    newest: Generation,
    next: Request,
    /// The server has not answered the last request.
    responds: bool,
}

impl AtNode {
    fn is_life(&self, life: Option<Life>) -> bool {
        !self.is_dead && life == Some(self.life)
    }
}

/// The flow at a switch: its entry, and what the switch waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum AtSwitch {
    #[default]
    Unknown,
    Owned {
        node: usize,
        generation: Generation,
    },
    Asking {
        request: Request,
        promise: Generation,
        newest: Generation,
        /// Lives of the nodes that were asked. Another life may know nothing of promises that others were given since.
        asked: [Option<Life>; NODES],
        has_answered: [bool; NODES],
    },
    Releasing {
        request: Request,
        node: usize,
        generation: Generation,
        next: Generation,
    },
    Adopting {
        request: Request,
        node: usize,
        generation: Generation,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    switches: [AtSwitch; SWITCHES],
    /// The cookie of the first request is of this process.
    has_cookie: [bool; SWITCHES],
    nodes: [AtNode; NODES],
    network: BTreeSet<Message>,
    /// Generations that each switch has chosen.
    attempts: [u8; SWITCHES],
    /// The request that the client sends, and repeats until it is answered.
    current: Request,
    /// The node that each request was given to last, and its life.
    runs: Vec<(usize, Life)>,
    /// A request was given to a server while another one that had had it lived.
    has_run_twice: bool,
    crashes: u8,
    deaths: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    /// A packet with the request arrives at a switch. `choice` is the node that the policy chooses, if it has to.
    Request {
        request: Request,
        switch: usize,
        choice: usize,
    },
    Deliver {
        message: Message,
        choice: usize,
    },
    Respond {
        node: usize,
    },
    Crash {
        switch: usize,
    },
    Die {
        node: usize,
    },
    Return {
        node: usize,
    },
    /// The switch learns that the node it waits for is dead, or is another life.
    Notice {
        switch: usize,
        choice: usize,
    },
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// Nodes compare generations.
    Generations,
    /// Without an owner, all nodes promise to take no other adoption before there is a new one.
    Promises,
    /// A switch asks before it dispatches a first request whose cookie is not its own.
    Cookies,
    /// A node that has just begun takes only adoptions that it has promised.
    Lives,
}

#[derive(Clone, Copy)]
struct Ownership {
    requests: Request,
    crashes: u8,
    deaths: u8,
    /// Bound on the generations that a switch chooses.
    attempts: u8,
    /// Bound on the messages under way.
    messages: usize,
    without: Without,
}

impl Ownership {
    fn send(&self, state: &mut State, switch: usize, node: usize, message: ToNode) {
        let AtNode { life, is_dead, .. } = state.nodes[node];
        if !is_dead {
            state.network.insert(Message { switch, node, life, content: Content::ToNode(message) });
        }
    }

    fn ask(&self, state: &mut State, switch: usize, request: Request, promise: Generation) {
        let asked = state.nodes.map(|at| (!at.is_dead).then_some(at.life));
        let has_answered = [false; NODES];
        state.switches[switch] = AtSwitch::Asking { request, promise, newest: promise, asked, has_answered };
        for node in 0..NODES {
            self.send(state, switch, node, ToNode::Probe { promise });
        }
    }

    fn adopt(&self, state: &mut State, switch: usize, request: Request, generation: Generation, node: usize) {
        state.switches[switch] = AtSwitch::Adopting { request, node, generation };
        self.send(state, switch, node, ToNode::Adopt { request, generation });
    }

    /// Chooses a generation after this one and after any first dispatch.
    fn choose(state: &mut State, after: Generation, switch: usize) -> Generation {
        state.attempts[switch] += 1;
        Generation { counter: after.counter.max(1) + 1, switch, attempt: state.attempts[switch] }
    }

    /// The switch knows nothing of the flow any more.
    fn forget(&self, state: &mut State, switch: usize) {
        state.switches[switch] = AtSwitch::Unknown;
        state.has_cookie[switch] = false;
    }

    fn request(&self, state: &mut State, switch: usize, request: Request, choice: usize) {
        match state.switches[switch] {
            AtSwitch::Unknown => {
                let is_own = state.has_cookie[switch] || self.without == Without::Cookies;
                if request == 1 && is_own {
                    self.adopt(state, switch, request, Generation::first(switch), choice);
                } else {
                    self.ask(state, switch, request, Generation::default());
                }
            }
            AtSwitch::Owned { node, generation } if node == choice => {
                self.send(state, switch, node, ToNode::Forward { request, generation });
            }
            AtSwitch::Owned { node, generation } => {
                let next = Self::choose(state, generation, switch);
                state.switches[switch] = AtSwitch::Releasing { request, node, generation, next };
                self.send(state, switch, node, ToNode::Release { request, generation, next });
            }
            AtSwitch::Asking { promise, asked, has_answered, .. } => {
                for node in 0..NODES {
                    if state.nodes[node].is_life(asked[node]) && !has_answered[node] {
                        self.send(state, switch, node, ToNode::Probe { promise });
                    }
                }
            }
            AtSwitch::Releasing { request, node, generation, next } => {
                self.send(state, switch, node, ToNode::Release { request, generation, next });
            }
            AtSwitch::Adopting { request, node, generation } => {
                self.send(state, switch, node, ToNode::Adopt { request, generation });
            }
        }
    }

    /// All nodes that live have answered: the switch asks for promises, or goes by them.
    fn conclude(&self, state: &mut State, switch: usize, choice: usize) {
        let AtSwitch::Asking { request, promise, newest, asked, has_answered } = state.switches[switch]
        else {
            return;
        };
        if (0..NODES).any(|node| state.nodes[node].is_life(asked[node]) && !has_answered[node]) {
            return;
        }
        let is_promised = promise != Generation::default() && newest == promise;
        if is_promised || self.without == Without::Promises {
            if state.nodes[choice].is_life(asked[choice]) {
                let generation = if is_promised { promise } else { Self::choose(state, newest, switch) };
                self.adopt(state, switch, request, generation, choice);
            }
        } else {
            let promise = Self::choose(state, newest, switch);
            self.ask(state, switch, request, promise);
        }
    }

    fn at_node(&self, state: &mut State, node: usize, message: ToNode) -> FromNode {
        let at = &mut state.nodes[node];
        match message {
            ToNode::Adopt { request, generation } if !at.owns => {
                let is_free = at.life == 0 || self.without == Without::Lives;
                let is_accepted = generation == at.newest
                    || generation > at.newest && is_free
                    || self.without == Without::Generations;
                if is_accepted && request >= at.next {
                    (at.owns, at.newest) = (true, generation);
                    Self::run(state, node, request);
                }
            }
            ToNode::Forward { request, generation }
                if at.owns && generation == at.newest && request == at.next =>
            {
                Self::run(state, node, request);
            }
            ToNode::Release { request, generation, next } => {
                if at.owns && generation == at.newest && request == at.next && !at.responds {
                    (at.owns, at.newest) = (false, next);
                }
                if !at.owns && at.newest == next && at.next == request {
                    return FromNode::Released { request, next };
                }
            }
            ToNode::Probe { promise } if !at.owns => {
                if promise > at.newest {
                    at.newest = promise;
                }
                return FromNode::Unowned { promised: promise, newest: at.newest, next: at.next };
            }
            _ => {}
        }
        let AtNode { owns, newest, next, .. } = state.nodes[node];
        match owns {
            true => FromNode::Owned { generation: newest },
            false => FromNode::Unowned { promised: Generation::default(), newest, next },
        }
    }

    fn run(state: &mut State, node: usize, request: Request) {
        let nodes = &state.nodes;
        let had = state.runs.drain(usize::from(request - 1).min(state.runs.len())..);
        state.has_run_twice |= had.into_iter().any(|(node, life)| nodes[node].life == life);
        let at = &mut state.nodes[node];
        (at.next, at.responds) = (request + 1, true);
        state.runs.push((node, at.life));
    }

    fn at_switch(
        &self,
        state: &mut State,
        switch: usize,
        (node, life): (usize, Life),
        message: FromNode,
        choice: usize,
    ) {
        match (state.switches[switch].clone(), message) {
            (AtSwitch::Unknown, _) => {}
            // Older than what the switch knows.
            (AtSwitch::Owned { generation: ours, .. }, FromNode::Owned { generation })
            | (AtSwitch::Adopting { generation: ours, .. }, FromNode::Owned { generation })
            | (AtSwitch::Releasing { generation: ours, .. }, FromNode::Owned { generation })
                if generation < ours => {}
            (_, FromNode::Owned { generation }) => {
                state.switches[switch] = AtSwitch::Owned { node, generation };
            }
            (
                AtSwitch::Asking { request, promise, newest, asked, mut has_answered },
                FromNode::Unowned { promised, newest: heard, next },
            ) if promised == promise && asked[node] == Some(life) => {
                if next > request {
                    return self.forget(state, switch);
                }
                has_answered[node] = true;
                let newest = newest.max(heard);
                state.switches[switch] = AtSwitch::Asking { request, promise, newest, asked, has_answered };
                self.conclude(state, switch, choice);
            }
            (AtSwitch::Owned { node: owner, .. }, FromNode::Unowned { .. })
            | (AtSwitch::Adopting { node: owner, .. }, FromNode::Unowned { .. })
            | (AtSwitch::Releasing { node: owner, .. }, FromNode::Unowned { .. })
                if owner == node =>
            {
                self.forget(state, switch);
            }
            (
                AtSwitch::Releasing { request, node: owner, next, .. },
                FromNode::Released { request: at, next: granted },
            ) if owner == node && (at, granted) == (request, next) && !state.nodes[choice].is_dead => {
                self.adopt(state, switch, request, next, choice);
            }
            _ => {}
        }
    }

    fn notice(&self, state: &mut State, switch: usize, choice: usize) {
        match state.switches[switch] {
            AtSwitch::Asking { request, asked, .. } => {
                match (0..NODES).any(|node| state.nodes[node].is_life(asked[node])) {
                    true => self.conclude(state, switch, choice),
                    false => self.ask(state, switch, request, Generation::default()),
                }
            }
            AtSwitch::Owned { node, .. }
            | AtSwitch::Releasing { node, .. }
            | AtSwitch::Adopting { node, .. }
                if state.nodes[node].life > 0 =>
            {
                self.forget(state, switch);
            }
            _ => {}
        }
    }

    fn changes(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.into_iter().any(|action| self.next_state(state, action).is_some())
    }
}

impl Model for Ownership {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            switches: Default::default(),
            has_cookie: std::array::from_fn(|switch| switch == ANSWERED_SYN),
            nodes: Default::default(),
            network: BTreeSet::new(),
            attempts: [0; SWITCHES],
            current: 1,
            runs: Vec::new(),
            has_run_twice: false,
            crashes: 0,
            deaths: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // What a dead node has had is known to nobody, so late copies of answered requests come only while all live.
        let first = if state.deaths == 0 { 1 } else { state.current };
        for choice in 0..NODES {
            for switch in 0..SWITCHES {
                if !state.nodes[choice].is_dead {
                    for request in first..=state.current.min(self.requests) {
                        actions.push(Action::Request { request, switch, choice });
                    }
                }
                if state.deaths > 0 {
                    actions.push(Action::Notice { switch, choice });
                }
            }
            for &message in &state.network {
                actions.push(Action::Deliver { message, choice });
            }
        }
        for (node, at) in state.nodes.iter().enumerate() {
            if at.responds {
                actions.push(Action::Respond { node });
            }
            if at.is_dead {
                actions.push(Action::Return { node });
            } else if state.deaths < self.deaths {
                actions.push(Action::Die { node });
            }
        }
        if state.crashes < self.crashes {
            actions.extend((0..SWITCHES).map(|switch| Action::Crash { switch }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Request { request, switch, choice } => self.request(&mut state, switch, request, choice),
            Action::Deliver { message, choice } => {
                state.network.remove(&message);
                let Message { switch, node, life, content } = message;
                match content {
                    Content::ToNode(message) => {
                        let content = Content::FromNode(self.at_node(&mut state, node, message));
                        state.network.insert(Message { switch, node, life, content });
                    }
                    Content::FromNode(message) => {
                        self.at_switch(&mut state, switch, (node, life), message, choice);
                    }
                }
            }
            Action::Respond { node } => {
                state.nodes[node].responds = false;
                state.current = state.current.max(state.nodes[node].next);
            }
            Action::Crash { switch } => {
                self.forget(&mut state, switch);
                state.crashes += 1;
            }
            Action::Die { node } => {
                let life = state.nodes[node].life + 1;
                state.nodes[node] = AtNode { is_dead: true, life, ..AtNode::default() };
                state.network.retain(|message| message.node != node);
                state.deaths += 1;
            }
            Action::Return { node } => state.nodes[node].is_dead = false,
            Action::Notice { switch, choice } => self.notice(&mut state, switch, choice),
        }
        (state != *last).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.network.len() <= self.messages
            && state.attempts.iter().all(|&attempts| attempts <= self.attempts)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_OWNER, |_, state: &State| {
                state.nodes.iter().filter(|at| at.owns).count() <= 1
            }),
            Property::always("no request runs again while the node that had it lives", |_, state: &State| {
                !state.has_run_twice
            }),
            Property::always("no state is a dead end", |model: &Ownership, state: &State| {
                state.current > model.requests || model.changes(state)
            }),
            Property::sometimes("all requests are answered", |model: &Ownership, state: &State| {
                state.current > model.requests
            }),
        ]
    }
}

const BOUNDS: Ownership =
    Ownership { requests: 2, crashes: 0, deaths: 0, attempts: 1, messages: 2, without: Without::Nothing };

/// `SWITCHBACK_LONG` asks for one attempt and one request more.
fn holds(mut model: Ownership) {
    if std::env::var_os("SWITCHBACK_LONG").is_some() {
        model.attempts += 1;
        model.requests += 1;
    }
    let checker = model.checker().threads(2).spawn_bfs().join();
    eprintln!("{} states, {} deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

#[test]
fn whichever_switch_gets_a_packet() {
    holds(BOUNDS);
}

#[test]
fn while_switches_forget() {
    holds(Ownership { crashes: 1, ..BOUNDS });
}

#[test]
fn while_a_node_dies_and_returns() {
    holds(Ownership { deaths: 1, ..BOUNDS });
}

#[test]
fn no_rule_can_be_left_out() {
    use Without::*;
    for without in [Generations, Promises, Cookies, Lives] {
        let model = Ownership { deaths: 1, attempts: 2, without, ..BOUNDS };
        let checker = model
            .checker()
            .threads(2)
            .finish_when(stateright::HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let discoveries = checker.discoveries();
        eprintln!("without {without:?}: {:?}, {} states", discoveries.keys(), checker.unique_state_count());
        assert!(discoveries.contains_key(ONE_OWNER), "without {without:?} the rules still hold");
    }
}
