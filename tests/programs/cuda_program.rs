//! An unmodified CUDA program, for the scenarios of sessions: it loads `libcuda.so.1` as any program does. Its argument says what it does
//! after it has doubled some numbers and checked them; a line on its output says when it has begun.

use std::{
    error::Error,
    ffi::{c_char, c_uint, c_void},
    io::{self, Write as _},
    ptr,
};

use gpufleet_tests::kernels;
use libloading::Library;

type Code = i32;
type Address = u64;

/// Bytes of a copy of `copies`.
const COPY_BYTES: usize = 64 << 20;

struct Cuda {
    library: Library,
}

/// A call that has failed, as its error code.
#[derive(Debug)]
struct Failed(&'static str, Code);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed with {}", self.0, self.1)
    }
}

impl Error for Failed {}

macro_rules! call {
    ($cuda:expr, $name:literal, ($($type:ty),*), ($($argument:expr),*)) => {{
        type Function = unsafe extern "C" fn($($type),*) -> Code;
        // SAFETY: this is the function's type in the C headers.
        let function = unsafe { $cuda.library.get::<Function>(concat!($name, "\0").as_bytes()) }?;
        // SAFETY: the pointers are valid for what the function does with them.
        match unsafe { function($($argument),*) } {
            0 => Ok::<(), Box<dyn Error>>(()),
            code => Err(Failed($name, code).into()),
        }
    }};
}

impl Cuda {
    fn open() -> Result<Self, Box<dyn Error>> {
        // SAFETY: the driver's library runs its initialisers.
        let cuda = Self { library: unsafe { Library::new("libcuda.so.1") }? };
        call!(cuda, "cuInit", (c_uint), (0))?;
        let (mut device, mut context) = (0_i32, ptr::null_mut::<c_void>());
        call!(cuda, "cuDeviceGet", (*mut i32, i32), (&raw mut device, 0))?;
        call!(cuda, "cuDevicePrimaryCtxRetain", (*mut *mut c_void, i32), (&raw mut context, device))?;
        call!(cuda, "cuCtxSetCurrent", (*mut c_void), (context))?;
        Ok(cuda)
    }

    fn alloc(&self, bytes: usize) -> Result<Address, Box<dyn Error>> {
        let mut address = 0;
        call!(self, "cuMemAlloc_v2", (*mut Address, usize), (&raw mut address, bytes))?;
        Ok(address)
    }

    fn memory(&self) -> Result<(usize, usize), Box<dyn Error>> {
        let (mut free, mut total) = (0, 0);
        call!(self, "cuMemGetInfo_v2", (*mut usize, *mut usize), (&raw mut free, &raw mut total))?;
        Ok((free, total))
    }

    fn upload(&self, to: Address, from: &[u8]) -> Result<(), Box<dyn Error>> {
        call!(self, "cuMemcpyHtoD_v2", (Address, *const u8, usize), (to, from.as_ptr(), from.len()))
    }

    fn download(&self, to: &mut [u8], from: Address) -> Result<(), Box<dyn Error>> {
        call!(self, "cuMemcpyDtoH_v2", (*mut u8, Address, usize), (to.as_mut_ptr(), from, to.len()))
    }

    /// Loads a kernel.
    fn function(&self, ptx: &str, entry: &str) -> Result<*mut c_void, Box<dyn Error>> {
        let (text, name) = (format!("{ptx}\0"), format!("{entry}\0"));
        let (mut module, mut function) = (ptr::null_mut::<c_void>(), ptr::null_mut::<c_void>());
        call!(self, "cuModuleLoadData", (*mut *mut c_void, *const c_char), (&raw mut module, text.as_ptr().cast()))?;
        call!(
            self,
            "cuModuleGetFunction",
            (*mut *mut c_void, *mut c_void, *const c_char),
            (&raw mut function, module, name.as_ptr().cast())
        )?;
        Ok(function)
    }

    /// Launches one block of a kernel.
    fn launch(&self, function: *mut c_void, threads: u32, arguments: &mut [*mut c_void]) -> Result<(), Box<dyn Error>> {
        let stream = ptr::null_mut::<c_void>();
        call!(
            self,
            "cuLaunchKernel",
            (*mut c_void, u32, u32, u32, u32, u32, u32, u32, *mut c_void, *mut *mut c_void, *mut *mut c_void),
            (function, 1, 1, 1, threads, 1, 1, 0, stream, arguments.as_mut_ptr(), ptr::null_mut())
        )
    }

    fn synchronize(&self) -> Result<(), Box<dyn Error>> {
        call!(self, "cuCtxSynchronize", (), ())
    }

    /// Doubles the numbers 0 to 31 on the device and checks them.
    fn double(&self, doubles: *mut c_void) -> Result<(), Box<dyn Error>> {
        let numbers: Vec<f32> = (0_u8..32).map(f32::from).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let (mut x, mut y, mut count) = (self.alloc(bytes.len())?, self.alloc(bytes.len())?, numbers.len() as u32);
        self.upload(x, &bytes)?;
        let mut arguments = [(&raw mut x).cast(), (&raw mut y).cast(), (&raw mut count).cast()];
        self.launch(doubles, count, &mut arguments)?;
        let mut doubled = vec![0; bytes.len()];
        self.download(&mut doubled, y)?;
        let doubled = doubled.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        if !doubled.eq(numbers.iter().map(|number| number * 2.0)) {
            return Err("wrong numbers".into());
        }
        for address in [x, y] {
            call!(self, "cuMemFree_v2", (Address), (address))?;
        }
        Ok(())
    }
}

extern "C" fn callback(_: *mut c_void) {
    tell("called back");
    loop {
        std::thread::park();
    }
}

/// Says on the output that something has happened.
fn tell(text: &str) {
    println!("{text}");
    // A reader that has gone needs no news.
    let _ = io::stdout().flush();
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = arguments.first().map_or("", String::as_str);
    let number =
        |place: usize| arguments.get(place).and_then(|text| text.parse::<usize>().ok()).ok_or("a number is missing");
    let cuda = Cuda::open()?;
    let doubles = cuda.function(kernels::DOUBLES, "doubles")?;
    cuda.double(doubles)?;
    match mode {
        "double" => tell("doubled"),
        "exit" => std::process::exit(number(1)? as i32),
        "memory" => {
            let (free, total) = cuda.memory()?;
            tell(&format!("{free} {total}"));
        }
        "alloc" => {
            cuda.alloc(number(1)?)?;
            tell("allocated");
        }
        // Holds memory until its input ends.
        "hold" => {
            cuda.alloc(number(1)?)?;
            tell("holding");
            io::stdin().read_line(&mut String::new())?;
            cuda.double(doubles)?;
        }
        "endless" => {
            let mut y = cuda.alloc(4)?;
            cuda.launch(cuda.function(kernels::ENDLESS, "endless")?, 1, &mut [(&raw mut y).cast()])?;
            tell("launched");
            cuda.synchronize()?;
        }
        "copies" => {
            let (address, bytes) = (cuda.alloc(COPY_BYTES)?, vec![7; COPY_BYTES]);
            tell("copying");
            loop {
                cuda.upload(address, &bytes)?;
            }
        }
        // Launches brief kernels for so many milliseconds, and says how many.
        "work" => {
            let until = std::time::Instant::now() + std::time::Duration::from_millis(number(1)? as u64);
            tell("working");
            let mut count = 0;
            while std::time::Instant::now() < until {
                cuda.double(doubles)?;
                count += 1;
            }
            tell(&format!("doubled {count} times"));
        }
        // Launches without an end, and waits for none of them.
        "flood" => {
            let (mut x, mut y, mut count) = (cuda.alloc(128)?, cuda.alloc(128)?, 32_u32);
            tell("flooding");
            loop {
                cuda.launch(doubles, count, &mut [(&raw mut x).cast(), (&raw mut y).cast(), (&raw mut count).cast()])?;
            }
        }
        // Never returns from a function that the driver calls.
        "callback" => {
            let function = callback as extern "C" fn(*mut c_void);
            call!(
                cuda,
                "cuLaunchHostFunc",
                (*mut c_void, extern "C" fn(*mut c_void), *mut c_void),
                (ptr::null_mut(), function, ptr::null_mut())
            )?;
            cuda.synchronize()?;
        }
        // Asks for a private table of NVIDIA's driver, as NVIDIA's runtime does.
        "runtime" => {
            let (mut table, id) = (ptr::null::<c_void>(), [7_u8; 16]);
            call!(cuda, "cuGetExportTable", (*mut *const c_void, *const [u8; 16]), (&raw mut table, &raw const id))?;
        }
        "fault" => {
            let mut y = cuda.alloc(4)?;
            cuda.launch(cuda.function(kernels::WILD_WRITE, "wild_write")?, 1, &mut [(&raw mut y).cast()])?;
            cuda.synchronize()?;
        }
        _ => return Err("the first argument says what to do".into()),
    }
    Ok(())
}
