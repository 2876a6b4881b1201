//! Doubles three numbers on the first device of the CUDA driver that the system finds.

use std::error::Error;

use cudarc::{
    driver::{CudaContext, LaunchConfig, PushKernelArg as _},
    nvrtc::compile_ptx,
};

const SCALE: &str = r#"
extern "C" __global__ void scale(float *values, float factor, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= factor;
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let scale = context.load_module(compile_ptx(SCALE)?)?.load_function("scale")?;
    let mut values = stream.clone_htod(&[1.0_f32, 2.0, 3.0])?;
    let mut launch = stream.launch_builder(&scale);
    launch.arg(&mut values).arg(&2.0_f32).arg(&3_u32);
    // SAFETY: the arguments have the types of the kernel's parameters, and it accesses three values.
    unsafe { launch.launch(LaunchConfig::for_num_elems(3)) }?;
    println!("{:?}", stream.clone_dtoh(&values)?);
    Ok(())
}
