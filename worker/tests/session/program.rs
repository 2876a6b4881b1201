//! A process of a program: the driver library, whose calls go to a gate through TLS as `gpufleet run` passes them on.

use std::{
    env,
    ffi::{CString, c_void},
    fs, ptr,
    sync::{Mutex, PoisonError},
};

use gpufleet_schema::session::Purpose;
use libloading::Library;
use tempfile::TempDir;
use tokio::{
    io::{copy, split},
    net::UnixListener,
    task::JoinHandle,
};

use crate::{client::Address, harness::built};

/// Kernels with all kinds of behaviour.
const KERNELS: &str = include_str!("../executor/kernels.ptx");

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($argument:ty),*);)+) => {
        struct Driver {
            $($name: extern "C" fn($($argument),*) -> i32,)+
        }

        impl Driver {
            fn of(library: &Library) -> Self {
                Self {
                    // SAFETY: the types of the functions in the C headers.
                    $($name: *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }.unwrap(),)+
                }
            }
        }
    };
}

functions! {
    init: "cuInit" (u32);
    retain_context: "cuDevicePrimaryCtxRetain" (*mut u64, i32);
    set_context: "cuCtxSetCurrent" (u64);
    synchronize: "cuCtxSynchronize" ();
    alloc: "cuMemAlloc_v2" (*mut u64, usize);
    free: "cuMemFree_v2" (u64);
    fill: "cuMemsetD32_v2" (u64, u32, usize);
    read: "cuMemcpyDtoH_v2" (*mut u8, u64, usize);
    load: "cuModuleLoadData" (*mut u64, *const u8);
    function: "cuModuleGetFunction" (*mut u64, u64, *const u8);
    launch: "cuLaunchKernel" (u64, u32, u32, u32, u32, u32, u32, u32, u64, *const *const c_void, *const *const c_void);
}

/// A process of the program.
pub(crate) struct Program {
    driver: Driver,
    module: u64,
    relay: JoinHandle<()>,
    /// Has the library's file and the socket.
    _folder: TempDir,
}

impl Program {
    /// Starts a process. Its calls block the calling thread, so another one must run the relay.
    pub(crate) fn start(address: &Address) -> Self {
        let (mut program, code) = Self::connect(address);
        assert_eq!(code, 0);
        program.use_device();
        program
    }

    /// Starts a process whose connection the gate refuses. Returns the driver's code.
    pub(crate) fn refused(address: &Address) -> i32 {
        Self::connect(address).1
    }

    /// Opens the session, with the driver's code.
    fn connect(address: &Address) -> (Self, i32) {
        static ONE: Mutex<()> = Mutex::new(());
        // The library reads the variable when it opens the session, and tests run at the same time.
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let (socket, path) = (folder.path().join("session"), folder.path().join("library.so"));
        let listener = UnixListener::bind(&socket).unwrap();
        let address = address.clone();
        let relay = tokio::spawn(async move {
            let (library, _) = listener.accept().await.unwrap();
            let (mut from_library, mut to_library) = split(library);
            let (mut from_gate, mut to_gate) = split(address.connect(Purpose::Program).await);
            tokio::select! {
                _ = copy(&mut from_library, &mut to_gate) => {}
                _ = copy(&mut from_gate, &mut to_library) => {}
            }
        });
        // The same file again would be the same library, with its session.
        fs::copy(built("libgpufleet_driver.so"), &path).unwrap();
        // SAFETY: no other thread reads the environment meanwhile, because all that do hold the lock.
        unsafe { env::set_var("GPUFLEET_SESSION_SOCKET", &socket) };
        // SAFETY: the library is ours.
        let library = unsafe { Library::new(&path) }.unwrap();
        let driver = Driver::of(&library);
        let code = (driver.init)(0);
        // The library has threads, so it stays.
        std::mem::forget(library);
        (Self { driver, module: 0, relay, _folder: folder }, code)
    }

    fn use_device(&mut self) {
        let mut context = 0;
        assert_eq!((self.driver.retain_context)(&raw mut context, 0), 0);
        assert_eq!((self.driver.set_context)(context), 0);
        let image = CString::new(KERNELS).unwrap();
        assert_eq!((self.driver.load)(&raw mut self.module, image.as_bytes_with_nul().as_ptr()), 0);
    }

    /// Allocates device memory; the code if that fails.
    pub(crate) fn alloc(&self, bytes: u64) -> Result<u64, i32> {
        let mut address = 0;
        match (self.driver.alloc)(&raw mut address, bytes as usize) {
            0 => Ok(address),
            code => Err(code),
        }
    }

    pub(crate) fn free(&self, address: u64) {
        assert_eq!((self.driver.free)(address), 0);
    }

    pub(crate) fn fill(&self, address: u64, value: u32, count: usize) {
        assert_eq!((self.driver.fill)(address, value, count), 0);
    }

    pub(crate) fn read(&self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        assert_eq!((self.driver.read)(bytes.as_mut_ptr(), address, bytes.len()), 0);
        u32::from_le_bytes(bytes)
    }

    /// Launches a kernel with one thread, whose arguments are an address and a count; the code.
    pub(crate) fn launch(&self, kernel: &str, address: u64, count: u32) -> i32 {
        let (mut function, name) = (0, CString::new(kernel).unwrap());
        let name = name.as_bytes_with_nul().as_ptr();
        assert_eq!((self.driver.function)(&raw mut function, self.module, name), 0);
        let arguments = [(&raw const address).cast::<c_void>(), (&raw const count).cast()];
        (self.driver.launch)(function, 1, 1, 1, 1, 1, 1, 0, 0, arguments.as_ptr(), ptr::null())
    }

    /// Waits for the device; the code.
    pub(crate) fn synchronize(&self) -> i32 {
        (self.driver.synchronize)()
    }

    /// Ends the process, as its gate sees it.
    pub(crate) fn end(&self) {
        self.relay.abort();
    }

    /// Waits until the gate has closed the connection.
    pub(crate) async fn closed(self) {
        self.relay.await.unwrap();
    }
}
