//! Graphs that are built node by node: order, parameters, updates, and errors.

use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, Mutex, mpsc::Sender},
};

use cudarc::{
    driver::{CudaFunction, CudaStream, result, sys},
    nvrtc::Ptx,
};

use crate::{
    platform::{code, context, separate_context},
    programs::STORE,
};

const INVALID_VALUE: i32 = 1;
const NOT_SUPPORTED: i32 = 801;
const UPDATE_FAILURE: i32 = 910;

/// A graph that is destroyed with the test.
struct Graph(sys::CUgraph);

impl Graph {
    fn new() -> Self {
        let mut graph = ptr::null_mut();
        // SAFETY: the result has a place.
        assert_eq!(unsafe { sys::cuGraphCreate(&mut graph, 0) } as i32, 0);
        Self(graph)
    }

    fn fill(&self, after: &[sys::CUgraphNode], address: u64, value: u32) -> sys::CUgraphNode {
        self.add(after, |node, first, count| {
            let params = fill_params(address, value);
            // SAFETY: the parameters outlive the call.
            unsafe { sys::cuGraphAddMemsetNode(node, self.0, first, count, &params, ptr::null_mut()) }
        })
    }

    fn copy(&self, after: &[sys::CUgraphNode], to: u64, from: u64, bytes: usize) -> sys::CUgraphNode {
        self.add(after, |node, first, count| {
            let params = copy_params(to, from, bytes);
            // SAFETY: the parameters outlive the call.
            unsafe { sys::cuGraphAddMemcpyNode(node, self.0, first, count, &params, ptr::null_mut()) }
        })
    }

    fn empty(&self, after: &[sys::CUgraphNode]) -> sys::CUgraphNode {
        // SAFETY: the places are valid.
        self.add(after, |node, first, count| unsafe { sys::cuGraphAddEmptyNode(node, self.0, first, count) })
    }

    fn say(&self, after: &[sys::CUgraphNode], saying: &Saying) -> sys::CUgraphNode {
        self.add(after, |node, first, count| {
            let params = saying.params();
            // SAFETY: the parameters outlive the call, and the saying the graph.
            unsafe { sys::cuGraphAddHostNode(node, self.0, first, count, &params) }
        })
    }

    fn add(
        &self,
        after: &[sys::CUgraphNode],
        call: impl FnOnce(*mut sys::CUgraphNode, *const sys::CUgraphNode, usize) -> sys::CUresult,
    ) -> sys::CUgraphNode {
        let mut node = ptr::null_mut();
        assert_eq!(call(&mut node, after.as_ptr(), after.len()) as i32, 0);
        node
    }

    fn instantiate(&self) -> Exec {
        // SAFETY: the graph is live.
        Exec(unsafe { result::graph::instantiate(self.0, sys::CUgraphInstantiate_flags(0)) }.unwrap())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the graph is this test's own.
        assert_eq!(unsafe { sys::cuGraphDestroy(self.0) } as i32, 0);
    }
}

struct Exec(sys::CUgraphExec);

impl Exec {
    fn run(&self, stream: &CudaStream) {
        // SAFETY: graph and stream are live.
        unsafe { result::graph::launch(self.0, stream.cu_stream()) }.unwrap();
        stream.synchronize().unwrap();
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: the graph is this test's own.
        assert_eq!(unsafe { sys::cuGraphExecDestroy(self.0) } as i32, 0);
    }
}

/// A host function that records its name.
struct Saying {
    name: &'static str,
    said: Arc<Mutex<Vec<&'static str>>>,
}

impl Saying {
    fn params(&self) -> sys::CUDA_HOST_NODE_PARAMS {
        sys::CUDA_HOST_NODE_PARAMS { fn_: Some(say), userData: ptr::from_ref(self).cast_mut().cast() }
    }
}

unsafe extern "C" fn say(saying: *mut c_void) {
    // SAFETY: the test passes a saying that outlives its graph's launches.
    let saying = unsafe { &*saying.cast::<Saying>() };
    saying.said.lock().unwrap().push(saying.name);
}

fn fill_params(address: u64, value: u32) -> sys::CUDA_MEMSET_NODE_PARAMS {
    sys::CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 4, width: 1, height: 1 }
}

fn copy_params(to: u64, from: u64, bytes: usize) -> sys::CUDA_MEMCPY3D {
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: ptr::null(),
        srcDevice: from,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: to,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    }
}

/// Memory of some words, freed with the test.
struct Words(u64, usize);

impl Words {
    fn new(count: usize) -> Self {
        // SAFETY: the memory is written before it is read.
        let address = unsafe { result::malloc_sync(4 * count) }.unwrap();
        // SAFETY: the memory was just allocated.
        unsafe { result::memset_d8_sync(address, 0, 4 * count) }.unwrap();
        Self(address, count)
    }

    fn get(&self) -> Vec<u32> {
        let mut words = vec![0; self.1];
        // SAFETY: the memory is live.
        unsafe { result::memcpy_dtoh_sync(&mut words, self.0) }.unwrap();
        words
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the memory is this test's own.
        unsafe { result::free_sync(self.0) }.unwrap();
    }
}

fn store() -> CudaFunction {
    context().load_module(Ptx::from_src(STORE)).unwrap().load_function("store").unwrap()
}

fn kernel_params(kernel: &CudaFunction, threads: u32, arguments: &mut [*mut c_void]) -> sys::CUDA_KERNEL_NODE_PARAMS {
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: kernel.cu_function(),
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: arguments.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

fn said(names: &[&'static str]) -> (Arc<Mutex<Vec<&'static str>>>, Vec<Saying>) {
    let said = Arc::default();
    let sayings = names.iter().map(|name| Saying { name, said: Arc::clone(&said) }).collect();
    (said, sayings)
}

#[test]
fn nodes_run_after_what_they_depend_on() {
    let stream = context().new_stream().unwrap();
    let (said, sayings) = said(&["a", "b", "c", "d"]);
    let graph = Graph::new();
    let d = graph.say(&[], &sayings[3]);
    let c = graph.say(&[], &sayings[2]);
    let b = graph.say(&[], &sayings[1]);
    let a = graph.say(&[], &sayings[0]);
    let (from, to) = ([a, a, b, c], [b, c, d, d]);
    // SAFETY: the arrays have the lengths that are passed, and the places are valid.
    unsafe {
        assert_eq!(sys::cuGraphAddDependencies(graph.0, from.as_ptr(), to.as_ptr(), 4) as i32, 0);
        assert_eq!(sys::cuGraphAddDependencies(graph.0, from.as_ptr(), to.as_ptr(), 1) as i32, INVALID_VALUE);
        let (mut nodes, mut count) = ([ptr::null_mut(); 4], 4);
        assert_eq!(sys::cuGraphGetRootNodes(graph.0, nodes.as_mut_ptr(), &mut count) as i32, 0);
        assert_eq!((count, nodes[0]), (1, a));
        let (mut sources, mut targets, mut edges) = ([ptr::null_mut(); 4], [ptr::null_mut(); 4], 0);
        assert_eq!(sys::cuGraphGetEdges(graph.0, ptr::null_mut(), ptr::null_mut(), &mut edges) as i32, 0);
        assert_eq!(edges, 4);
        assert_eq!(sys::cuGraphGetEdges(graph.0, sources.as_mut_ptr(), targets.as_mut_ptr(), &mut edges) as i32, 0);
        let known = from.iter().zip(to).all(|edge| sources.iter().zip(targets).any(|known| known == edge));
        assert!(known, "{sources:?} {targets:?}");
        let (mut count, mut after) = (4, [ptr::null_mut(); 4]);
        assert_eq!(sys::cuGraphNodeGetDependentNodes(a, after.as_mut_ptr(), &mut count) as i32, 0);
        assert_eq!(count, 2);
        assert_eq!(sys::cuGraphNodeGetDependencies(d, after.as_mut_ptr(), &mut count) as i32, 0);
        assert_eq!((count, &after[..2]), (2, &[b, c][..]));
    }
    graph.instantiate().run(&stream);
    let order = said.lock().unwrap().clone();
    assert_eq!((order.len(), order[0], order[3]), (4, "a", "d"), "{order:?}");
    // SAFETY: the nodes are live.
    unsafe {
        assert_eq!(sys::cuGraphRemoveDependencies(graph.0, from.as_ptr(), to.as_ptr(), 4) as i32, 0);
        assert_eq!(sys::cuGraphRemoveDependencies(graph.0, from.as_ptr(), to.as_ptr(), 1) as i32, INVALID_VALUE);
        assert_eq!(sys::cuGraphDestroyNode(a) as i32, 0);
        assert_eq!(sys::cuGraphDestroyNode(a) as i32, INVALID_VALUE);
    }
}

#[test]
fn a_graph_with_a_cycle_has_no_order() {
    let graph = Graph::new();
    context();
    let a = graph.empty(&[]);
    let b = graph.empty(&[a]);
    // SAFETY: the arrays have the lengths that are passed.
    unsafe {
        assert_eq!(sys::cuGraphAddDependencies(graph.0, &b, &a, 1) as i32, 0);
        let mut exec = ptr::null_mut();
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut exec, graph.0, 0) as i32, INVALID_VALUE);
        let mut params = std::mem::zeroed::<sys::CUDA_GRAPH_INSTANTIATE_PARAMS>();
        assert_eq!(sys::cuGraphInstantiateWithParams(&mut exec, graph.0, &mut params) as i32, INVALID_VALUE);
        assert_eq!(params.result_out, sys::CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
        assert_eq!(sys::cuGraphAddDependencies(graph.0, &a, &a, 1) as i32, INVALID_VALUE);
        let other = Graph::new();
        let stranger = other.empty(&[]);
        assert_eq!(sys::cuGraphAddDependencies(graph.0, &stranger, &a, 1) as i32, INVALID_VALUE);
    }
}

#[test]
fn kernels_copies_and_fills_work_together() {
    let stream = context().new_stream().unwrap();
    let (kernel, words) = (store(), Words::new(8));
    let graph = Graph::new();
    let (mut address, mut second) = (words.0, words.0 + 4);
    let mut arguments = [ptr::from_mut(&mut address).cast::<c_void>()];
    let params = kernel_params(&kernel, 4, &mut arguments);
    let mut stored = ptr::null_mut();
    // SAFETY: the parameters outlive the call.
    assert_eq!(unsafe { sys::cuGraphAddKernelNode_v2(&mut stored, graph.0, ptr::null(), 0, &params) } as i32, 0);
    let copied = graph.copy(&[stored], words.0 + 16, words.0, 16);
    let filled = graph.fill(&[copied], words.0, 9);
    let exec = graph.instantiate();
    exec.run(&stream);
    assert_eq!(words.get(), [9, 1, 2, 3, 0, 1, 2, 3]);

    // The parameters can be queried and used for another node.
    // SAFETY: places and parameters are valid.
    unsafe {
        let mut known = std::mem::zeroed::<sys::CUDA_KERNEL_NODE_PARAMS>();
        assert_eq!(sys::cuGraphKernelNodeGetParams_v2(stored, &mut known) as i32, 0);
        assert_eq!((known.func, known.blockDimX), (kernel.cu_function(), 4));
        assert_eq!((*known.kernelParams).cast::<u64>().read_unaligned(), words.0);
        let mut copy = copy_params(0, 0, 0);
        assert_eq!(sys::cuGraphMemcpyNodeGetParams(copied, &mut copy) as i32, 0);
        assert_eq!((copy.srcDevice, copy.dstDevice, copy.WidthInBytes), (words.0, words.0 + 16, 16));
        let mut fill = std::mem::zeroed::<sys::CUDA_MEMSET_NODE_PARAMS>();
        assert_eq!(sys::cuGraphMemsetNodeGetParams(filled, &mut fill) as i32, 0);
        assert_eq!((fill.dst, fill.value, fill.elementSize, fill.width), (words.0, 9, 4, 1));
        assert_eq!(sys::cuGraphMemsetNodeGetParams(copied, &mut fill) as i32, INVALID_VALUE);

        // New parameters apply to later launches of this executable graph.
        arguments[0] = ptr::from_mut(&mut second).cast();
        let params = kernel_params(&kernel, 2, &mut arguments);
        assert_eq!(sys::cuGraphExecKernelNodeSetParams_v2(exec.0, stored, &params) as i32, 0);
        let copy = copy_params(words.0 + 28, words.0 + 8, 4);
        assert_eq!(sys::cuGraphExecMemcpyNodeSetParams(exec.0, copied, &copy, ptr::null_mut()) as i32, 0);
        let fill = fill_params(words.0 + 16, 5);
        assert_eq!(sys::cuGraphExecMemsetNodeSetParams(exec.0, filled, &fill, ptr::null_mut()) as i32, 0);
        assert_eq!(sys::cuGraphExecMemsetNodeSetParams(exec.0, stored, &fill, ptr::null_mut()) as i32, INVALID_VALUE);
    }
    exec.run(&stream);
    assert_eq!(words.get(), [9, 0, 1, 3, 5, 1, 2, 1]);
    // The graph itself is unchanged.
    graph.instantiate().run(&stream);
    assert_eq!(words.get(), [9, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_step_can_be_switched_off_and_on() {
    let stream = context().new_stream().unwrap();
    let words = Words::new(2);
    let graph = Graph::new();
    let first = graph.fill(&[], words.0, 1);
    graph.fill(&[first], words.0 + 4, 2);
    let exec = graph.instantiate();
    let mut enabled = 9;
    // SAFETY: handles and places are valid.
    unsafe {
        assert_eq!(sys::cuGraphNodeSetEnabled(exec.0, first, 0) as i32, 0);
        assert_eq!(sys::cuGraphNodeGetEnabled(exec.0, first, &mut enabled) as i32, 0);
    }
    exec.run(&stream);
    assert_eq!((enabled, words.get()), (0, vec![0, 2]));
    // SAFETY: as above.
    assert_eq!(unsafe { sys::cuGraphNodeSetEnabled(exec.0, first, 1) } as i32, 0);
    exec.run(&stream);
    assert_eq!(words.get(), [1, 2]);
}

#[test]
fn a_graph_in_a_graph_is_a_copy_of_it() {
    let stream = context().new_stream().unwrap();
    let words = Words::new(2);
    let (inner, outer) = (Graph::new(), Graph::new());
    inner.fill(&[], words.0, 3);
    let first = outer.fill(&[], words.0, 1);
    // SAFETY: the places are valid.
    let child = outer.add(&[first], |node, after, count| unsafe {
        sys::cuGraphAddChildGraphNode(node, outer.0, after, count, inner.0)
    });
    inner.fill(&[], words.0 + 4, 4);
    let exec = outer.instantiate();
    exec.run(&stream);
    assert_eq!(words.get(), [3, 0]);
    // SAFETY: handles and places are valid.
    unsafe {
        let (mut part, mut count) = (ptr::null_mut(), 0);
        assert_eq!(sys::cuGraphChildGraphNodeGetGraph(child, &mut part) as i32, 0);
        assert_eq!(sys::cuGraphGetNodes(part, ptr::null_mut(), &mut count) as i32, 0);
        assert_eq!(count, 1);
        assert_eq!(sys::cuGraphDestroy(part) as i32, INVALID_VALUE);
        let mut node = ptr::null_mut();
        assert_eq!(sys::cuGraphGetNodes(part, &mut node, &mut count) as i32, 0);
        let fill = fill_params(words.0 + 4, 8);
        assert_eq!(sys::cuGraphExecMemsetNodeSetParams(exec.0, node, &fill, ptr::null_mut()) as i32, 0);
    }
    exec.run(&stream);
    assert_eq!(words.get(), [1, 8]);
}

#[test]
fn a_clone_is_independent_and_knows_its_nodes() {
    let stream = context().new_stream().unwrap();
    let words = Words::new(1);
    let graph = Graph::new();
    let node = graph.fill(&[], words.0, 1);
    let (mut clone, mut copy) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: handles and places are valid.
    let clone = unsafe {
        assert_eq!(sys::cuGraphClone(&mut clone, graph.0) as i32, 0);
        assert_eq!(sys::cuGraphNodeFindInClone(&mut copy, node, clone) as i32, 0);
        assert_ne!(copy, node);
        assert_eq!(sys::cuGraphNodeFindInClone(&mut copy, node, graph.0) as i32, INVALID_VALUE);
        assert_eq!(sys::cuGraphNodeFindInClone(&mut copy, node, clone) as i32, 0);
        assert_eq!(sys::cuGraphMemsetNodeSetParams(copy, &fill_params(words.0, 2)) as i32, 0);
        Graph(clone)
    };
    clone.instantiate().run(&stream);
    assert_eq!(words.get(), [2]);
    graph.instantiate().run(&stream);
    assert_eq!(words.get(), [1]);
}

#[test]
fn an_update_takes_a_graph_of_the_same_shape() {
    let stream = context().new_stream().unwrap();
    let words = Words::new(2);
    let chain = |values: [u32; 2]| {
        let graph = Graph::new();
        let first = graph.fill(&[], words.0, values[0]);
        graph.fill(&[first], words.0 + 4, values[1]);
        graph
    };
    let exec = chain([1, 2]).instantiate();
    // SAFETY: zeros are a valid result.
    let mut told = unsafe { std::mem::zeroed::<sys::CUgraphExecUpdateResultInfo>() };
    // SAFETY: handles and places are valid.
    let mut update =
        |graph: &Graph| (unsafe { sys::cuGraphExecUpdate_v2(exec.0, graph.0, &mut told) } as i32, told.result as u32);
    assert_eq!(update(&chain([3, 4])), (0, 0));
    let (parallel, longer, other) = (Graph::new(), chain([5, 6]), Graph::new());
    parallel.fill(&[], words.0, 7);
    parallel.fill(&[], words.0 + 4, 7);
    longer.empty(&[]);
    let first = other.fill(&[], words.0, 7);
    other.empty(&[first]);
    assert_eq!(update(&parallel), (UPDATE_FAILURE, 2));
    assert_eq!(update(&longer), (UPDATE_FAILURE, 2));
    assert_eq!(update(&other), (UPDATE_FAILURE, 3));
    exec.run(&stream);
    assert_eq!(words.get(), [3, 4]);
}

#[test]
fn a_graph_can_be_captured_into_another() {
    let context = separate_context();
    let stream = context.new_stream().unwrap();
    let words = Words::new(2);
    let graph = Graph::new();
    let node = graph.fill(&[], words.0, 1);
    let exec = graph.instantiate();
    // SAFETY: handles and places are valid.
    unsafe {
        assert_eq!(
            sys::cuGraphExecMemsetNodeSetParams(exec.0, node, &fill_params(words.0, 6), ptr::null_mut()) as i32,
            0
        );
    }
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    // SAFETY: as above.
    unsafe {
        result::graph::launch(exec.0, stream.cu_stream()).unwrap();
        assert_eq!(sys::cuMemsetD32Async(words.0 + 4, 7, 1, stream.cu_stream()) as i32, 0);
    }
    let captured = stream.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    drop(exec);
    assert_eq!(words.get(), [0, 0]);
    captured.launch().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(words.get(), [6, 7]);
}

#[test]
fn nodes_can_be_made_from_parameters_of_any_kind() {
    let stream = context().new_stream().unwrap();
    let words = Words::new(1);
    let graph = Graph::new();
    // SAFETY: zeros are valid parameters, and the union's part goes with the kind.
    unsafe {
        let mut params = std::mem::zeroed::<sys::CUgraphNodeParams>();
        params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
        params.__bindgen_anon_1.memset = sys::CUDA_MEMSET_NODE_PARAMS_v2 {
            dst: words.0,
            pitch: 0,
            value: 3,
            elementSize: 2,
            width: 2,
            height: 1,
            ctx: ptr::null_mut(),
        };
        let mut node = ptr::null_mut();
        assert_eq!(sys::cuGraphAddNode(&mut node, graph.0, ptr::null(), 0, &mut params) as i32, 0);
        graph.instantiate().run(&stream);
        assert_eq!(words.get(), [0x0003_0003]);
        params.__bindgen_anon_1.memset.value = 0x1_0000;
        assert_eq!(sys::cuGraphNodeSetParams(node, &mut params) as i32, INVALID_VALUE);
        params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
        assert_eq!(sys::cuGraphAddNode(&mut node, graph.0, ptr::null(), 0, &mut params) as i32, NOT_SUPPORTED);
    }
}

#[test]
fn a_launch_waits_its_turn_in_its_stream() {
    unsafe extern "C" fn tell(channel: *mut c_void) {
        // SAFETY: the test passes a sender that outlives the launch.
        unsafe { &*channel.cast::<Sender<&str>>() }.send("graph").unwrap();
    }
    let stream = context().new_stream().unwrap();
    let (sender, received) = std::sync::mpsc::channel::<&str>();
    let (go, held) = std::sync::mpsc::channel::<()>();
    let graph = Graph::new();
    let params = sys::CUDA_HOST_NODE_PARAMS { fn_: Some(tell), userData: ptr::from_ref(&sender).cast_mut().cast() };
    // SAFETY: the parameters outlive the call.
    graph.add(&[], |node, after, count| unsafe { sys::cuGraphAddHostNode(node, graph.0, after, count, &params) });
    let exec = graph.instantiate();
    stream.context().bind_to_thread().unwrap();
    // SAFETY: the function runs once and takes the receiver over.
    unsafe {
        let held = Box::into_raw(Box::new(held)).cast();
        result::stream::launch_host_function(stream.cu_stream(), crate::streams::wait_at_gate, held).unwrap();
        result::graph::launch(exec.0, stream.cu_stream()).unwrap();
    }
    sender.send("caller").unwrap();
    go.send(()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(received.try_iter().collect::<Vec<_>>(), ["caller", "graph"]);
}

#[test]
fn stale_graphs_and_wrong_flags_are_errors() {
    context();
    let graph = Graph::new();
    let mut exec = ptr::null_mut();
    // SAFETY: that stale handles are refused is what is tested.
    unsafe {
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut exec, graph.0, 1 << 10) as i32, INVALID_VALUE);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut exec, graph.0, 5) as i32, INVALID_VALUE);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut exec, graph.0, 4) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut exec, ptr::null_mut(), 0) as i32, INVALID_VALUE);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut exec, graph.0, 1) as i32, 0);
        assert_eq!(code(result::graph::exec_destroy(exec)), 0);
        assert_eq!(code(result::graph::exec_destroy(exec)), INVALID_VALUE);
        assert_eq!(code(result::graph::launch(exec, ptr::null_mut())), INVALID_VALUE);
        let node = graph.empty(&[]);
        drop(graph);
        let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        assert_eq!(sys::cuGraphNodeGetType(node, &mut kind) as i32, INVALID_VALUE);
    }
}
