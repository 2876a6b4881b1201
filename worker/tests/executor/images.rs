//! Tests of programs as an executor receives them, on a socket without a supervisor.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
};

use gpufleet_schema::{Block, FailureCode, Grid};
use gpufleet_worker::ipc::{
    FromExecutor, ToExecutor,
    frame::{self, FrameReader},
    message::{ArgPlan, BufferPlan, Contents, Image, JobPlan, LaunchPlan},
};

use crate::harness::{PTX, executable};

/// An executor child and the test's end of its socket.
struct Bare {
    socket: UnixStream,
    incoming: FrameReader,
    child: Child,
    /// The executor's messages about waits of the last job.
    waits: Vec<FromExecutor>,
}

impl Bare {
    fn start() -> Self {
        let (socket, theirs) = UnixStream::pair().expect("there are descriptors left");
        let child = Command::new(executable())
            .args(["executor", "--device", "0", "--cuda", "emulated", "--streams", "1", "--resident-bytes-max", "0"])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::null())
            .spawn()
            .expect("the worker was built for this test");
        let incoming = FrameReader::over(socket.try_clone().expect("there are descriptors left"));
        let mut bare = Self { socket, incoming, child, waits: Vec::new() };
        let FromExecutor::Ready(device, memory) = bare.next() else { panic!("it does not start") };
        assert!(!device.takes_cubins && memory.free > 0);
        bare
    }

    fn next(&mut self) -> FromExecutor {
        self.incoming.read().expect("it speaks our language").expect("it lives").0
    }

    fn say(&self, message: &ToExecutor) {
        frame::write(&self.socket, message).expect("it lives");
    }

    /// Sends a program and runs it.
    fn load_and_run(&mut self, program: u32, image: Image) -> Result<(), FailureCode> {
        self.say(&ToExecutor::Program { program, image });
        self.run(program)
    }

    /// Runs `add_one` of a program on four zeros.
    fn run(&mut self, program: u32) -> Result<(), FailureCode> {
        let launch = LaunchPlan {
            entry: "add_one".to_owned(),
            symbol: "add_one".to_owned(),
            grid: Grid::Blocks(vec![1]),
            block: Block::Threads(vec![4]),
            shared_bytes: 0,
            args: vec![ArgPlan::Buffer { buffer: 0, offset: 0 }, ArgPlan::Scalar { bits: 4, size: 4 }],
            repeat: 1,
            cooperative: false,
            cluster: vec![],
        };
        let run = JobPlan {
            job: u64::from(program),
            program,
            buffers: vec![BufferPlan { bytes: 16, contents: Contents::Zeros }],
            counter: None,
            launches: vec![launch],
            outputs: vec![],
            leaving: vec![],
            cache_bytes_max: u64::MAX,
            prints: false,
        };
        self.say(&ToExecutor::Run(vec![run]));
        self.waits.clear();
        loop {
            match self.next() {
                FromExecutor::Memory(_) => {}
                said @ (FromExecutor::Waits { .. } | FromExecutor::GoesOn { .. }) => self.waits.push(said),
                FromExecutor::Finished { outcome, .. } => return outcome.map_err(|failure| failure.code),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_driver_that_refuses_the_cubin_gets_the_ptx() {
    let mut executor = Bare::start();
    let mut cubin = vec![0_u8; 64];
    // The complete header of a file for a GPU without any contents. The emulator accepts no cubin at all.
    cubin[..6].copy_from_slice(b"\x7fELF\x02\x01");
    cubin[18..20].copy_from_slice(&190_u16.to_le_bytes());
    assert_eq!(executor.load_and_run(1, Image::Cubin(cubin.clone())), Err(FailureCode::LoadError));
    assert_eq!(executor.load_and_run(2, Image::Both { cubin: cubin.clone(), ptx: PTX.to_owned() }), Ok(()));
    assert_eq!(executor.load_and_run(3, Image::Both { cubin: b"no cubin".to_vec(), ptx: PTX.to_owned() }), Ok(()));
    let broken = Image::Both { cubin, ptx: "no PTX either".to_owned() };
    assert_eq!(executor.load_and_run(4, broken), Err(FailureCode::LoadError));
}

#[test]
fn a_job_that_finds_its_module_and_memory_says_nothing_of_waiting() {
    let mut executor = Bare::start();
    assert_eq!(executor.load_and_run(1, Image::Ptx(PTX.to_owned())), Ok(()));
    assert!(
        matches!(executor.waits[..], [FromExecutor::Waits { job: 1 }, FromExecutor::GoesOn { job: 1 }, ..]),
        "{:?}",
        executor.waits
    );
    assert_eq!(executor.run(1), Ok(()));
    assert!(executor.waits.is_empty(), "{:?}", executor.waits);
}
