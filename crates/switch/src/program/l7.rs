//! The program as one L7 thread uses it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use switchback_flow::entry::Entry;
use switchback_rates::{Bucket, Taken, Wish};
use switchback_runtime::{Doing, Result};
use switchback_wire::{
    address_bytes, bytes_of, read_from, sb_bucket, sb_flow, sb_flow_entry, sb_rate, sb_taking, sb_wish,
};

use super::Program;
use super::skeleton::types::{change_batch, change_context, change_kind, l7_thread};
use crate::dispatch::Change;

/// The flow maps, and what the program shares with this thread alone.
pub struct L7Access<'a> {
    thread: usize,
    /// The rings of this thread, one for each CPU.
    pub rings: &'a [MapHandle],
    /// Flows with a node, and flows without one.
    maps: [MapHandle; 2],
    apply_changes: BorrowedFd<'a>,
    take_tokens: BorrowedFd<'a>,
    batch: *mut change_batch,
    taking: *mut sb_taking,
    state: *mut l7_thread,
}

// SAFETY: `batch`, `taking` and `state` are memory of the program, which lives as long as 'a, and are used by this thread alone and by
// the program.
unsafe impl Send for L7Access<'_> {}

impl Program {
    /// Access for the thread with this number. Each thread has one.
    pub fn l7(&self, thread: usize) -> Result<L7Access<'_>> {
        let [flows, waiting] = [&self.skel.maps.flows, &self.skel.maps.waiting].map(MapHandle::try_from);
        let use_it = || "use the flow map";
        // SAFETY: the memory is the program's as long as this object lives; no reference to it is made.
        let (batch, taking, state) = unsafe {
            let memory = self.memory;
            (
                &raw mut (*memory).batches[thread],
                &raw mut (*memory).takings[thread],
                &raw mut (*memory).l7_states[thread],
            )
        };
        Ok(L7Access {
            thread,
            rings: &self.rings[thread],
            maps: [flows.doing(use_it)?, waiting.doing(use_it)?],
            apply_changes: self.skel.progs.apply_changes.as_fd(),
            take_tokens: self.skel.progs.take_tokens.as_fd(),
            batch,
            // Both types are generated from the same C structure.
            taking: taking.cast(),
            state,
        })
    }
}

impl L7Access<'_> {
    /// Applies changes to the flow maps in order, each only if the entry is still that of its connection.
    pub fn change_flows(&self, changes: &[(sb_flow, Change)]) -> Result<()> {
        // SAFETY: the program reads the batch only while apply_changes() runs, which this thread alone starts.
        let memory = unsafe { &mut *self.batch };
        for batch in changes.chunks(memory.changes.len()) {
            for (place, (flow, change)) in std::iter::zip(&mut memory.changes, batch) {
                let kind = match change {
                    Change::Replace(_) | Change::Lock(_) => change_kind::CHANGE_REPLACE,
                    Change::Create(_) => change_kind::CHANGE_CREATE,
                    Change::Remove { .. } => change_kind::CHANGE_REMOVE,
                    Change::Forget { .. } => change_kind::CHANGE_FORGET,
                    Change::Abandon { .. } => change_kind::CHANGE_ABANDON,
                    Change::Ahead { .. } => change_kind::CHANGE_AHEAD,
                };
                // SAFETY: both types are generated from the same C structures.
                unsafe {
                    (&raw mut place.flow).cast::<sb_flow>().write(*flow);
                    (&raw mut place.entry).cast::<sb_flow_entry>().write(change.encode());
                }
                place.kind = kind;
            }
            memory.len = batch.len() as u32;
            self.run(self.apply_changes).doing(|| "change the flow map")?;
        }
        Ok(())
    }

    /// Takes these tokens of the buckets that all threads and the program share. If that fails, there are no limits.
    pub fn take_tokens(&self, wishes: &[Wish]) -> Taken {
        if wishes.is_empty() {
            return Taken::Now;
        }
        // SAFETY: the program uses it only while take_tokens() runs, which this thread alone starts.
        let taking = unsafe { &mut *self.taking };
        for (place, wish) in std::iter::zip(&mut taking.wishes, wishes) {
            *place = wish_of(wish);
        }
        taking.count = wishes.len() as u32;
        if let Err(error) = self.run(self.take_tokens) {
            log::error!("cannot take tokens: {error}");
            return Taken::Now;
        }
        // SAFETY: the program has written it.
        let taking = unsafe { std::ptr::read_volatile(self.taking) };
        let wait = Duration::from_nanos(taking.wait);
        match (taking.taken != 0, wait.is_zero()) {
            (true, true) => Taken::Now,
            (true, false) => Taken::After(wait),
            (false, _) => Taken::Over(wait),
        }
    }

    /// Runs one of the programs that work on this thread's part of the shared memory.
    fn run(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let mut context = change_context { thread: self.thread as u32 };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: (&raw mut context).cast(),
            ctx_size_in: size_of::<change_context>() as u32,
            ..Default::default()
        };
        // SAFETY: the options point to memory that lives until the call returns.
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    /// Tells the program whether the thread polls its rings. Before it sleeps, it must set false and poll once more.
    pub fn set_awake(&self, awake: bool) {
        self.awake().store(awake.into(), Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Whether the program has woken the thread since `set_awake(false)`.
    pub fn is_awake(&self) -> bool {
        self.awake().load(Ordering::SeqCst) != 0
    }

    fn awake(&self) -> &AtomicU32 {
        // SAFETY: the program changes the word with atomic operations only.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.state).awake) }
    }

    /// Entry of a flow.
    pub fn flow(&self, flow: &sb_flow) -> Option<Entry> {
        self.mapped(flow).and_then(|entry| Entry::decode(&entry))
    }

    pub(super) fn mapped(&self, flow: &sb_flow) -> Option<sb_flow_entry> {
        let mapped = |map: &MapHandle| read_from(&map.lookup(bytes_of(flow), MapFlags::ANY).ok()??);
        self.maps.iter().find_map(mapped)
    }
}

fn wish_of(wish: &Wish) -> sb_wish {
    let Wish { bucket: Bucket { client, service, of }, interval_ns, tolerance_ns, patience_ns } = *wish;
    sb_wish {
        bucket: sb_bucket { network: client.map_or([0; 16], address_bytes), service, of },
        rate: sb_rate { interval: interval_ns, tolerance: tolerance_ns },
        patience: patience_ns,
    }
}
