//! The objects of a random program, and its calls on both drivers.

use std::{
    ffi::{CString, c_void},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{
    arguments::{Arguments, flat},
    call::{Call, NAMES},
    driver::Driver,
    object::{IS_STALE, NEVER, Object, Outcome, kill, object},
};

const KERNELS: &str = include_str!("kernels.ptx");

/// The objects of a program.
#[derive(Debug, Default)]
pub struct World {
    memory: Vec<Object>,
    streams: Vec<Object>,
    events: Vec<Object>,
    modules: Vec<Object>,
    functions: Vec<Object>,
    graphs: Vec<Object>,
    nodes: Vec<Object>,
    execs: Vec<Object>,
    pub contexts: [u64; 2],
    /// The stream that is captured. Work of others would race with what its graph may do.
    pub captured: Option<usize>,
}

/// The default streams are streams too.
fn stream(world: &World, place: usize) -> [u64; 2] {
    match place {
        0 => [0; 2],
        1 => [1; 2],
        2 => [2; 2],
        place => object(&world.streams, place - 3).handles,
    }
}

/// How often functions of the program have run.
static HOST_CALLS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn count_host_call(count: *mut c_void) {
    HOST_CALLS.fetch_add(count.addr() as u32, Ordering::Relaxed);
}

impl World {
    /// Makes a call on both drivers. Without outcomes it was left out, because it would race or crash.
    pub fn make(&mut self, drivers: &[Driver; 2], call: Call) -> Option<[Outcome; 2]> {
        let outcome = |code: i32, results: &[u8]| (code, results.to_vec());
        // Work of several streams on one memory has no order, so each call starts when the last one has ended.
        let settle = |world: &World| {
            if world.captured.is_none() {
                drivers.iter().for_each(|driver| {
                    (driver.synchronize)();
                });
            }
        };
        // A session refuses what a graph would copy from or to the program's memory.
        if let (Some(_), Call::Write { stream: Some(_), .. } | Call::Read { stream: Some(_), .. }) =
            (self.captured, call)
        {
            return None;
        }
        if self.depends_on_layout(call) {
            return None;
        }
        let mut handles = [0_u64; 2];
        IS_STALE.set(false);
        // A driver ends a capture for some wrong calls, which a session answers without it.
        let is_captured = self.captured.is_some();
        let each = |work: &mut dyn FnMut(usize, &Driver) -> Outcome| {
            (!is_captured || !IS_STALE.get()).then(|| {
                [0, 1].map(|side| {
                    let (code, results) = work(side, &drivers[side]);
                    // The failure of a post comes with the next answer.
                    let is_posted = call.is_post() && code == 0;
                    (if is_posted { drivers[side].next_answer() } else { code }, results)
                })
            })
        };
        match call {
            Call::Alloc { bytes } => {
                let made = each(&mut |side, driver| ((driver.alloc)(&raw mut handles[side], bytes), Vec::new()));
                self.add(&made, handles, bytes, |world| &mut world.memory);
                made
            }
            Call::AllocPitch { width, height } => {
                let mut pitches = [0; 2];
                let made = each(&mut |side, driver| {
                    let pitch = &raw mut pitches[side];
                    let code = (driver.alloc_pitch)(&raw mut handles[side], pitch, width, height, 4);
                    outcome(code, &pitches[side].to_le_bytes())
                });
                self.add(&made, handles, pitches[0] * height, |world| &mut world.memory);
                made
            }
            Call::AllocAsync { bytes, stream: on } => {
                // Memory of a graph is there while the graph runs.
                if self.captured.is_some() {
                    return None;
                }
                let on = stream(self, on);
                settle(self);
                let made = each(&mut |side, driver| {
                    ((driver.alloc_async)(&raw mut handles[side], bytes, on[side]), Vec::new())
                });
                self.add(&made, handles, bytes, |world| &mut world.memory);
                made
            }
            Call::Free { memory } => {
                let object = object(&self.memory, memory);
                let made = each(&mut |side, driver| ((driver.free)(object.handles[side]), Vec::new()));
                kill(&made, self.memory.get_mut(memory));
                made
            }
            Call::FreeAsync { memory, stream: on } => {
                let (object, on) = (object(&self.memory, memory), stream(self, on));
                settle(self);
                let made = each(&mut |side, driver| ((driver.free_async)(object.handles[side], on[side]), Vec::new()));
                kill(&made, self.memory.get_mut(memory));
                made
            }
            Call::Range { memory, offset } => {
                let object = object(&self.memory, memory);
                each(&mut |side, driver| {
                    let (mut base, mut bytes) = (0, 0);
                    let at = object.handles[side] + offset as u64;
                    let code = (driver.range)(&raw mut base, &raw mut bytes, at);
                    let distance = if code == 0 { at - base } else { 0 };
                    outcome(code, &[distance, bytes as u64].map(u64::to_le_bytes).concat())
                })
            }
            Call::Attribute { memory, attribute } => {
                let object = object(&self.memory, memory);
                each(&mut |side, driver| {
                    let mut value = 0_u64;
                    outcome((driver.attribute)((&raw mut value).cast(), attribute, object.handles[side]), &[])
                })
            }
            Call::Write { memory, offset, bytes, seed, stream: on } => {
                let object = object(&self.memory, memory);
                let data: Vec<u8> = (0..bytes).map(|at| seed.wrapping_add(at as u8)).collect();
                let on = on.map(|on| stream(self, on));
                settle(self);
                each(&mut |side, driver| {
                    let at = object.handles[side] + offset as u64;
                    let code = match on {
                        None => (driver.write)(at, data.as_ptr(), bytes),
                        Some(on) => (driver.write_async)(at, data.as_ptr(), bytes, on[side]),
                    };
                    // The driver may read the data until then. In this order a failure is told of as in process.
                    let ended = (driver.synchronize_stream)(on.map_or(0, |on| on[side]));
                    outcome(if code == 0 { ended } else { code }, &[])
                })
            }
            Call::Read { memory, offset, bytes, stream: on } => {
                let (object, on) = (object(&self.memory, memory), on.map(|on| stream(self, on)));
                settle(self);
                each(&mut |side, driver| {
                    let mut data = vec![0xAA; bytes];
                    let at = object.handles[side] + offset as u64;
                    let code = match on {
                        None => (driver.read)(data.as_mut_ptr(), at, bytes),
                        Some(on) => (driver.read_async)(data.as_mut_ptr(), at, bytes, on[side]),
                    };
                    (driver.synchronize_stream)(on.map_or(0, |on| on[side]));
                    outcome(code, &data)
                })
            }
            Call::Copy { to, from, bytes, stream: on } => {
                let (to, from) = (object(&self.memory, to), object(&self.memory, from));
                let on = on.map(|on| stream(self, on));
                settle(self);
                each(&mut |side, driver| {
                    let (to, from) = (to.handles[side], from.handles[side]);
                    let code = match on {
                        None => (driver.copy)(to, from, bytes),
                        Some(on) => (driver.copy_async)(to, from, bytes, on[side]),
                    };
                    outcome(code, &[])
                })
            }
            Call::CopyAny { to, from, bytes } => {
                let (to, from) = (object(&self.memory, to), object(&self.memory, from));
                // The driver would take an address that it did not allocate for one of this process.
                if !to.is_alive || !from.is_alive {
                    return None;
                }
                settle(self);
                each(&mut |side, driver| outcome((driver.copy_any)(to.handles[side], from.handles[side], bytes), &[]))
            }
            Call::CopyFlat { memory, x, y, width, height, to_host } => {
                let object = object(&self.memory, memory);
                settle(self);
                each(&mut |side, driver| {
                    let mut host = vec![0x55_u8; 64 * 64];
                    let code = (driver.copy_flat)(
                        flat(object.handles[side], host.as_mut_ptr(), [x, y], [width, height], to_host).as_ptr().cast(),
                    );
                    outcome(code, &host)
                })
            }
            Call::Fill { memory, offset, count, width, value, stream: on } => {
                let (object, on) = (object(&self.memory, memory), stream(self, on));
                settle(self);
                each(&mut |side, driver| {
                    let at = object.handles[side] + offset as u64;
                    let code = match width {
                        1 => (driver.fill8)(at, value as u8, count),
                        2 => (driver.fill16)(at, value as u16, count, on[side]),
                        _ => (driver.fill32)(at, value, count, on[side]),
                    };
                    outcome(code, &[])
                })
            }
            Call::FillFlat { memory, pitch, width, height, value } => {
                let object = object(&self.memory, memory);
                settle(self);
                each(&mut |side, driver| {
                    outcome((driver.fill_flat)(object.handles[side], pitch, value, width, height), &[])
                })
            }
            Call::CreateStream { flags, priority } => {
                let made = each(&mut |side, driver| {
                    outcome((driver.create_stream)(&raw mut handles[side], flags, priority), &[])
                });
                self.add(&made, handles, 0, |world| &mut world.streams);
                made
            }
            Call::DestroyStream { stream: on } => {
                if on < 3 || self.captured == Some(on) {
                    return None;
                }
                let handles = stream(self, on);
                let made = each(&mut |side, driver| outcome((driver.destroy_stream)(handles[side]), &[]));
                kill(&made, self.streams.get_mut(on - 3));
                made
            }
            Call::QueryStream { stream: on } => {
                let on = stream(self, on);
                settle(self);
                each(&mut |side, driver| outcome((driver.query_stream)(on[side]), &[]))
            }
            Call::SynchronizeStream { stream: on } => {
                let on = stream(self, on);
                each(&mut |side, driver| outcome((driver.synchronize_stream)(on[side]), &[]))
            }
            Call::WaitEvent { stream: on, event } => {
                // The other stream would join the capture.
                if self.captured.is_some() {
                    return None;
                }
                let (on, event) = (stream(self, on), object(&self.events, event));
                each(&mut |side, driver| outcome((driver.wait_event)(on[side], event.handles[side], 0), &[]))
            }
            Call::StreamFacts { stream: on } => {
                let on = stream(self, on);
                let contexts = self.contexts;
                each(&mut |side, driver| {
                    let (mut priority, mut flags, mut context) = (9, 9, 9);
                    let codes = [
                        (driver.stream_priority)(on[side], &raw mut priority),
                        (driver.stream_flags)(on[side], &raw mut flags),
                        (driver.stream_context)(on[side], &raw mut context),
                    ];
                    let is_ours = i32::from(context == contexts[side]);
                    let facts = [codes[1], codes[2], priority, flags.cast_signed(), is_ours];
                    outcome(codes[0], &facts.map(i32::to_le_bytes).concat())
                })
            }
            Call::HostFunction { stream: on } => {
                // Nothing may be waited for during a capture.
                if self.captured.is_some() {
                    return None;
                }
                let on = stream(self, on);
                settle(self);
                each(&mut |side, driver| {
                    HOST_CALLS.store(0, Ordering::Relaxed);
                    let step = std::ptr::without_provenance_mut(3);
                    let code = (driver.call_host)(on[side], Some(count_host_call), step);
                    (driver.synchronize_stream)(on[side]);
                    outcome(code, &HOST_CALLS.load(Ordering::Relaxed).to_le_bytes())
                })
            }
            Call::CreateEvent { flags } => {
                let made = each(&mut |side, driver| outcome((driver.create_event)(&raw mut handles[side], flags), &[]));
                self.add(&made, handles, 0, |world| &mut world.events);
                made
            }
            Call::DestroyEvent { event } => {
                let object = object(&self.events, event);
                let made = each(&mut |side, driver| outcome((driver.destroy_event)(object.handles[side]), &[]));
                kill(&made, self.events.get_mut(event));
                made
            }
            Call::Record { event, stream: on } => {
                let (event, on) = (object(&self.events, event), stream(self, on));
                settle(self);
                each(&mut |side, driver| outcome((driver.record_event)(event.handles[side], on[side]), &[]))
            }
            Call::QueryEvent { event } => {
                let event = object(&self.events, event);
                settle(self);
                each(&mut |side, driver| outcome((driver.query_event)(event.handles[side]), &[]))
            }
            Call::SynchronizeEvent { event } => {
                let event = object(&self.events, event);
                each(&mut |side, driver| outcome((driver.synchronize_event)(event.handles[side]), &[]))
            }
            Call::Elapsed { start, end } => {
                let (start, end) = (object(&self.events, start), object(&self.events, end));
                settle(self);
                each(&mut |side, driver| {
                    let mut milliseconds = 0.0;
                    let code = (driver.elapsed)(&raw mut milliseconds, start.handles[side], end.handles[side]);
                    outcome(code, &[])
                })
            }
            Call::Load { is_good } => {
                let image = CString::new(if is_good { KERNELS } else { "no program" }).unwrap();
                let made = each(&mut |side, driver| {
                    outcome((driver.load)(&raw mut handles[side], image.as_ptr().cast()), &[])
                });
                self.add(&made, handles, 0, |world| &mut world.modules);
                made
            }
            Call::Unload { module } => {
                let object = object(&self.modules, module);
                settle(self);
                let made = each(&mut |side, driver| outcome((driver.unload)(object.handles[side]), &[]));
                if kill(&made, self.modules.get_mut(module)) {
                    let of_module = |function: &&mut Object| function.owner == module;
                    self.functions.iter_mut().filter(of_module).for_each(|function| function.is_alive = false);
                }
                made
            }
            Call::Function { module, name } => {
                let object = object(&self.modules, module);
                let symbol = CString::new(NAMES[name]).unwrap();
                let made = each(&mut |side, driver| {
                    outcome((driver.function)(&raw mut handles[side], object.handles[side], symbol.as_ptr()), &[])
                });
                if self.add(&made, handles, 0, |world| &mut world.functions) {
                    let function = self.functions.last_mut().unwrap();
                    (function.kernel, function.owner) = (name, module);
                }
                made
            }
            Call::Global { module, is_there } => {
                let object = object(&self.modules, module);
                let symbol = if is_there { c"counter" } else { c"absent" };
                each(&mut |side, driver| {
                    let (mut address, mut bytes, mut value) = (0, 0, [0_u8; 4]);
                    let code = (driver.global)(&raw mut address, &raw mut bytes, object.handles[side], symbol.as_ptr());
                    if code == 0 {
                        (driver.read)(value.as_mut_ptr(), address, bytes);
                    }
                    outcome(code, &[&bytes.to_le_bytes()[..], &value].concat())
                })
            }
            Call::FunctionAttribute { function, attribute } => {
                let object = object(&self.functions, function);
                each(&mut |side, driver| {
                    let mut value = 0;
                    let code = (driver.function_attribute)(&raw mut value, attribute, object.handles[side]);
                    outcome(code, &value.to_le_bytes())
                })
            }
            Call::SetFunctionAttribute { function, attribute, value } => {
                let object = object(&self.functions, function);
                each(&mut |side, driver| {
                    outcome((driver.set_function_attribute)(object.handles[side], attribute, value), &[])
                })
            }
            Call::Occupancy { function, block, shared } => {
                let object = object(&self.functions, function);
                each(&mut |side, driver| {
                    let mut blocks = 0;
                    let code = (driver.occupancy)(&raw mut blocks, object.handles[side], block, shared);
                    outcome(code, &blocks.to_le_bytes())
                })
            }
            Call::Launch { function, to, from, grid, block, shared, stream: on } => {
                let function = object(&self.functions, function);
                let (to, from) = (object(&self.memory, to), object(&self.memory, from));
                // A kernel that leaves its memory ends both devices for good.
                let words = (to.bytes.min(from.bytes) / 4) as u32;
                let fits = to.is_alive && from.is_alive && words > 0;
                let reverses_too_much = function.kernel == 3 && (block > words || shared < block * 4 || grid != 1);
                if !fits || reverses_too_much {
                    return None;
                }
                let on = stream(self, on);
                settle(self);
                each(&mut |side, driver| {
                    let arguments = Arguments { to: to.handles[side], from: from.handles[side], words };
                    let code = arguments.with(function.kernel, |pointers| {
                        (driver.launch)(
                            function.handles[side],
                            grid,
                            1,
                            1,
                            block,
                            1,
                            1,
                            shared,
                            on[side],
                            pointers,
                            std::ptr::null(),
                        )
                    });
                    outcome(code, &[])
                })
            }
            Call::Capture { stream: on, mode } => {
                if self.captured.is_some() {
                    return None;
                }
                settle(self);
                let handles = stream(self, on);
                let made = each(&mut |side, driver| outcome((driver.begin_capture)(handles[side], mode), &[]));
                if made.as_ref().is_some_and(|[(code, _), _]| *code == 0) {
                    self.captured = Some(on);
                }
                made
            }
            Call::EndCapture { stream: on } => {
                let on_handles = stream(self, on);
                let made = each(&mut |side, driver| {
                    outcome((driver.end_capture)(on_handles[side], &raw mut handles[side]), &[])
                });
                if self.captured == Some(on) {
                    self.captured = None;
                }
                self.add(&made, handles, 0, |world| &mut world.graphs);
                made
            }
            Call::IsCapturing { stream: on } => {
                let on = stream(self, on);
                each(&mut |side, driver| {
                    let mut status = 9;
                    let code = (driver.is_capturing)(on[side], &raw mut status);
                    outcome(code, &status.to_le_bytes())
                })
            }
            Call::CreateGraph { flags } => {
                let made = each(&mut |side, driver| outcome((driver.create_graph)(&raw mut handles[side], flags), &[]));
                self.add(&made, handles, 0, |world| &mut world.graphs);
                made
            }
            Call::DestroyGraph { graph } => {
                let object = object(&self.graphs, graph);
                let made = each(&mut |side, driver| outcome((driver.destroy_graph)(object.handles[side]), &[]));
                kill(&made, self.graphs.get_mut(graph));
                made
            }
            Call::CloneGraph { graph } => {
                let object = object(&self.graphs, graph);
                let made = each(&mut |side, driver| {
                    outcome((driver.clone_graph)(&raw mut handles[side], object.handles[side]), &[])
                });
                self.add(&made, handles, 0, |world| &mut world.graphs);
                made
            }
            Call::AddEmpty { graph } => {
                let object = object(&self.graphs, graph);
                let made = each(&mut |side, driver| {
                    let node = &raw mut handles[side];
                    outcome((driver.add_empty)(node, object.handles[side], std::ptr::null(), 0), &[])
                });
                self.add(&made, handles, 0, |world| &mut world.nodes);
                made
            }
            Call::Nodes { graph } => {
                let object = object(&self.graphs, graph);
                let mut all = [[0_u64; 8]; 2];
                let made = each(&mut |side, driver| {
                    let mut count = 8;
                    let nodes = all[side].as_mut_ptr();
                    let code = (driver.nodes)(object.handles[side], nodes, &raw mut count);
                    outcome(code, &count.to_le_bytes())
                });
                let [here, there] = all;
                for handles in here.into_iter().zip(there).filter(|(here, _)| *here != 0) {
                    self.nodes.push(Object { handles: handles.into(), is_alive: true, owner: graph, ..NEVER });
                }
                made
            }
            Call::NodeKind { node } => {
                let object = object(&self.nodes, node);
                each(&mut |side, driver| {
                    let mut kind = 99;
                    let code = (driver.node_kind)(object.handles[side], &raw mut kind);
                    outcome(code, &kind.to_le_bytes())
                })
            }
            Call::DestroyNode { node } => {
                let object = object(&self.nodes, node);
                let made = each(&mut |side, driver| outcome((driver.destroy_node)(object.handles[side]), &[]));
                kill(&made, self.nodes.get_mut(node));
                made
            }
            Call::Instantiate { graph } => {
                let object = object(&self.graphs, graph);
                let made = each(&mut |side, driver| {
                    outcome((driver.instantiate)(&raw mut handles[side], object.handles[side], 0), &[])
                });
                self.add(&made, handles, 0, |world| &mut world.execs);
                made
            }
            // What a graph does to memory that was freed since is a fault.
            Call::LaunchGraph { exec, stream: on } => {
                if self.memory.iter().any(|memory| !memory.is_alive) || self.captured.is_some() {
                    return None;
                }
                let (exec, on) = (object(&self.execs, exec), stream(self, on));
                settle(self);
                each(&mut |side, driver| outcome((driver.launch_graph)(exec.handles[side], on[side]), &[]))
            }
            Call::DestroyExec { exec } => {
                let object = object(&self.execs, exec);
                let made = each(&mut |side, driver| outcome((driver.destroy_exec)(object.handles[side]), &[]));
                kill(&made, self.execs.get_mut(exec));
                made
            }
            Call::Pinned { bytes } => {
                // The library allocates it without asking whether something is captured.
                if self.captured.is_some() {
                    return None;
                }
                each(&mut |_, driver| {
                    let mut pinned = std::ptr::null_mut();
                    let code = (driver.alloc_host)(&raw mut pinned, bytes, 0);
                    let freed = if code == 0 { (driver.free_host)(pinned) } else { 0 };
                    outcome(code, &freed.to_le_bytes())
                })
            }
            Call::Synchronize => each(&mut |_, driver| outcome((driver.synchronize)(), &[])),
            Call::NoContext => {
                let contexts = self.contexts;
                each(&mut |side, driver| {
                    let mut current = 0;
                    let codes = [
                        (driver.set_context)(0),
                        (driver.alloc)(&raw mut current, 16),
                        (driver.current_context)(&raw mut current),
                        (driver.set_context)(contexts[side]),
                    ];
                    outcome(codes[0], &codes.map(i32::to_le_bytes).concat())
                })
            }
        }
    }

    /// Reports whether the answer depends on where the drivers placed other memory: that of freed memory does, and that
    /// of addresses behind an end.
    fn depends_on_layout(&self, call: Call) -> bool {
        call.memory().into_iter().flatten().any(|place| match self.memory.get(place) {
            Some(memory) => !memory.is_alive || call.offset() > 0 && call.offset() >= memory.bytes,
            None => call.offset() > 0,
        })
    }

    /// Adds an object that both drivers made.
    fn add(
        &mut self,
        made: &Option<[Outcome; 2]>,
        handles: [u64; 2],
        bytes: usize,
        list: impl FnOnce(&mut Self) -> &mut Vec<Object>,
    ) -> bool {
        let is_made = made.as_ref().is_some_and(|outcomes| outcomes.iter().all(|(code, _)| *code == 0));
        if is_made {
            list(self).push(Object { handles, bytes, is_alive: true, kernel: 5, owner: usize::MAX });
        }
        is_made
    }
}
