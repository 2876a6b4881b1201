//! Linking of several texts through the driver's linker.

use std::{
    ffi::{CStr, CString, c_void},
    ptr,
};

use cudarc::driver::{
    result::{self, function, module},
    sys::{self, CUfunction_attribute, CUjit_option, CUjitInputType},
};

use crate::platform::context;

const UNKNOWN: i32 = 999;
const INVALID_PTX: i32 = 218;
const NO_BINARY_FOR_GPU: i32 = 209;
const NOT_SUPPORTED: i32 = 801;
const LOG_BYTES: usize = 4096;

/// A kernel that writes the results of an external function and an external variable.
const KERNEL: &str = "
.version 8.0
.target sm_80
.address_size 64

.extern .func (.param .b32 result) twice(.param .b32 value);
.extern .func unused();
.extern .global .u32 bias;

.visible .entry compute(.param .u64 out)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	ld.global.u32 %r1, [bias];
	{
	.param .b32 value;
	.param .b32 result;
	st.param.b32 [value], 20;
	call.uni (result), twice, (value);
	ld.param.b32 %r2, [result];
	}
	add.u32 %r3, %r1, %r2;
	st.global.u32 [%rd1], %r3;
	ret;
}
";

fn twice(linkage: &str, factor: u32) -> String {
    format!(
        "
.version 8.0
.target sm_80
.address_size 64

.func hidden()
{{
	ret;
}}

{linkage} .func (.param .b32 result) twice(.param .b32 value)
{{
	.reg .b32 %r<3>;
	call.uni hidden;
	ld.param.b32 %r1, [value];
	mul.lo.u32 %r2, %r1, {factor};
	st.param.b32 [result], %r2;
	ret;
}}
"
    )
}

const BIAS: &str = "
.version 8.0
.target sm_80
.address_size 64
.func hidden()
{
	ret;
}
.visible .global .u32 bias = 2;
";

/// A linking in progress, with an error log.
struct Link {
    state: sys::CUlinkState,
    log: Box<[u8; LOG_BYTES]>,
    _values: Box<[*mut c_void; 3]>,
}

impl Link {
    fn new(registers_max: usize) -> Self {
        context();
        let mut log = Box::new([0; LOG_BYTES]);
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CUjit_option::CU_JIT_MAX_REGISTERS,
        ];
        let [bytes, limit] = [LOG_BYTES, registers_max].map(ptr::without_provenance_mut);
        let mut values = Box::new([log.as_mut_ptr().cast(), bytes, limit]);
        let mut state = ptr::null_mut();
        // SAFETY: options, values and log last as long as the link.
        let code = unsafe { sys::cuLinkCreate_v2(3, options.as_mut_ptr(), values.as_mut_ptr(), &mut state) };
        assert_eq!(code as i32, 0);
        Self { state, log, _values: values }
    }

    fn add(&self, kind: CUjitInputType, name: &CStr, data: &[u8]) -> i32 {
        let (data, bytes) = (data.as_ptr().cast_mut().cast(), data.len());
        // SAFETY: data and name are valid during the call, and there are no options.
        unsafe {
            sys::cuLinkAddData_v2(self.state, kind, data, bytes, name.as_ptr(), 0, ptr::null_mut(), ptr::null_mut())
                as i32
        }
    }

    fn add_ptx(&self, name: &CStr, ptx: &str) -> i32 {
        self.add(CUjitInputType::CU_JIT_INPUT_PTX, name, ptx.as_bytes())
    }

    fn complete(&self) -> Result<sys::CUmodule, i32> {
        let (mut image, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: both results have a place; the image lasts as long as the link.
        unsafe {
            match sys::cuLinkComplete(self.state, &mut image, &mut bytes) as i32 {
                0 => Ok(module::load_data(image).unwrap()),
                code => Err(code),
            }
        }
    }

    fn log(&self) -> &str {
        CStr::from_bytes_until_nul(&*self.log).unwrap().to_str().unwrap()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the link was created by `new`.
        assert_eq!(unsafe { sys::cuLinkDestroy(self.state) } as i32, 0);
    }
}

/// Returns the words that a kernel writes to its only parameter.
fn written<const WORDS: usize>(kernel: sys::CUfunction, blocks: u32, threads: u32) -> [u32; WORDS] {
    let (stream, mut words) = (context().default_stream(), [0; WORDS]);
    // SAFETY: the kernel writes this many words.
    unsafe {
        let out = result::malloc_sync(4 * WORDS).unwrap();
        result::memset_d8_sync(out, 0, 4 * WORDS).unwrap();
        let mut parameters = [ptr::from_ref(&out).cast_mut().cast()];
        let (grid, block) = ((blocks, 1, 1), (threads, 1, 1));
        result::launch_cooperative_kernel(kernel, grid, block, 0, stream.cu_stream(), &mut parameters).unwrap();
        result::memcpy_dtoh_sync(&mut words, out).unwrap();
        result::free_sync(out).unwrap();
    }
    words
}

/// Returns what the kernel `compute` writes.
fn computed(module: sys::CUmodule) -> u32 {
    // SAFETY: the module is valid.
    let [word] = written(unsafe { module::get_function(module, c"compute".to_owned()) }.unwrap(), 1, 1);
    word
}

#[test]
fn texts_are_linked_in_any_order() {
    let (function, kernel) = (twice(".visible", 2), KERNEL);
    for order in [[KERNEL, &function, BIAS], [BIAS, &function, KERNEL], [&function, kernel, BIAS]] {
        let link = Link::new(0);
        for text in order {
            assert_eq!(link.add_ptx(c"text.ptx", text), 0, "{}", link.log());
        }
        let module = link.complete().unwrap_or_else(|code| panic!("{code}: {}", link.log()));
        assert_eq!(computed(module), 42);
    }
}

#[test]
fn comments_may_have_any_characters() {
    let (function, kernel) = (twice(".visible", 2), KERNEL.replacen('\n', "// \u{1e}, and \u{fc}\n", 1));
    let link = Link::new(0);
    for text in [&kernel, &function, &format!("{BIAS}\0{BIAS}")] {
        assert_eq!(link.add_ptx(c"text.ptx", text), 0, "{}", link.log());
    }
    assert_eq!(computed(link.complete().unwrap()), 42);
}

#[test]
fn the_first_weak_definition_counts_unless_one_is_visible() {
    let result = |functions: &[String]| {
        let link = Link::new(0);
        for text in functions.iter().map(String::as_str).chain([KERNEL, BIAS]) {
            assert_eq!(link.add_ptx(c"text.ptx", text), 0);
        }
        computed(link.complete().unwrap())
    };
    assert_eq!(result(&[twice(".weak", 3), twice(".weak", 4)]), 62);
    assert_eq!(result(&[twice(".weak", 3), twice(".visible", 4), twice(".weak", 5)]), 82);
}

#[test]
fn parameters_of_other_texts_are_not_compared() {
    let wide = twice(".visible", 2)
        .replace(".func (.param .b32 result) twice(.param .b32", ".func (.param .b32 result) twice(.param .b64");
    let link = Link::new(0);
    for text in [&wide, KERNEL, BIAS] {
        assert_eq!(link.add_ptx(c"text.ptx", text), 0);
    }
    assert_eq!(computed(link.complete().unwrap()), 42);
}

#[test]
fn a_missing_or_repeated_definition_is_named_with_its_texts() {
    let link = Link::new(0);
    assert_eq!(link.add_ptx(c"kernel.ptx", KERNEL), 0);
    assert_eq!(link.complete(), Err(UNKNOWN));
    let missing = ["bias", "twice"].map(|name| format!("error   : Undefined reference to '{name}' in 'kernel.ptx'"));
    assert_eq!(link.log(), missing.join("\n"));
    assert_eq!(link.add_ptx(c"bias.ptx", BIAS), 0);
    assert_eq!(link.add_ptx(c"a.ptx", &twice(".visible", 2)), 0);
    assert_eq!(computed(link.complete().unwrap()), 42);

    assert_eq!(link.add_ptx(c"b.ptx", &twice(".visible", 2)), 0);
    assert_eq!(link.complete(), Err(UNKNOWN));
    assert_eq!(link.log(), "error   : Multiple definition of 'twice' in 'b.ptx', first defined in 'a.ptx'");
}

#[test]
fn a_mistake_in_a_text_is_told_when_the_text_is_added() {
    let link = Link::new(0);
    assert_eq!(link.add_ptx(c"broken.ptx", &KERNEL.replace("add.u32", "frobnicate")), INVALID_PTX);
    assert!(link.log().contains("frobnicate"), "{}", link.log());
    assert_eq!(link.add(CUjitInputType::CU_JIT_INPUT_CUBIN, c"a.cubin", b"\x7fELF"), NO_BINARY_FOR_GPU);
    assert_eq!(link.add(CUjitInputType::CU_JIT_INPUT_LIBRARY, c"other.a", b"!<arch>\nother.o/"), NOT_SUPPORTED);
    assert_eq!(link.complete(), Err(1));
}

#[test]
fn a_limit_on_registers_shows_in_the_kernel() {
    let registers = |link: &Link| {
        let texts = [KERNEL, BIAS, &twice(".visible", 2)];
        texts.iter().for_each(|text| assert_eq!(link.add_ptx(c"text.ptx", text), 0));
        // SAFETY: the module and the function are valid.
        unsafe {
            let kernel = module::get_function(link.complete().unwrap(), c"compute".to_owned()).unwrap();
            function::get_function_attribute(kernel, CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS).unwrap()
        }
    };
    assert!(registers(&Link::new(0)) > 2);
    assert_eq!(registers(&Link::new(2)), 2);
    let text = CString::new(BOUNDED).unwrap();
    // SAFETY: the image ends with a NUL.
    unsafe {
        let kernel = module::get_function(module::load_data(text.as_ptr().cast()).unwrap(), c"bounded".to_owned());
        let registers = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
        assert_eq!(function::get_function_attribute(kernel.unwrap(), registers), Ok(1));
    }
}

/// A kernel that declares its maximum registers.
const BOUNDED: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry bounded(.param .u64 out)
.maxnreg 1
{
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out];
	add.u64 %rd2, %rd1, 8;
	st.global.u64 [%rd1], %rd2;
	ret;
}
";

/// Each block adds one to the first word; after the grid barrier the last block copies it to the second.
const MEETING: &str = "
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 error) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);

.visible .entry meeting(.param .u64 counts)
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [counts];
	atom.global.add.u32 %r1, [%rd1], 1;
	{
	.param .b32 scope;
	.param .b64 handle;
	st.param.b32 [scope], 1;
	call.uni (handle), cudaCGGetIntrinsicHandle, (scope);
	ld.param.b64 %rd2, [handle];
	}
	{
	.param .b64 handle;
	.param .b32 flags;
	.param .b32 error;
	st.param.b64 [handle], %rd2;
	st.param.b32 [flags], 0;
	call.uni (error), cudaCGSynchronize, (handle, flags);
	ld.param.b32 %r2, [error];
	}
	ld.volatile.global.u32 %r3, [%rd1];
	mov.u32 %r4, %ctaid.x;
	mul.wide.u32 %rd3, %r4, 4;
	add.u64 %rd3, %rd1, %rd3;
	add.u32 %r3, %r3, %r2;
	st.global.u32 [%rd3+4], %r3;
	ret;
}
";

#[test]
fn the_device_runtime_lets_the_blocks_of_a_grid_meet() {
    const BLOCKS: u32 = 5;
    const THREADS: u32 = 64;
    let link = Link::new(0);
    assert_eq!(link.add_ptx(c"meeting.ptx", MEETING), 0, "{}", link.log());
    assert_eq!(link.complete(), Err(UNKNOWN));
    assert!(link.log().contains("Undefined reference to 'cudaCGSynchronize' in 'meeting.ptx'"), "{}", link.log());
    let archive = b"!<arch>\n//      34        `\ncuda_device_runtime.o/\n";
    assert_eq!(link.add(CUjitInputType::CU_JIT_INPUT_LIBRARY, c"libcudadevrt.a", archive), 0, "{}", link.log());
    let module = link.complete().unwrap_or_else(|code| panic!("{code}: {}", link.log()));
    // SAFETY: the module is valid.
    let kernel = unsafe { module::get_function(module, c"meeting".to_owned()) }.unwrap();
    assert_eq!(written(kernel, BLOCKS, THREADS), [BLOCKS * THREADS; BLOCKS as usize + 1]);
}
