//! Structures of the C headers as values: field by field, without the gaps that C leaves between fields.

use std::sync::{Arc, atomic::Ordering};

use gpufleet_surface::{
    argument::In,
    callback::HostFunction,
    status::{Answer, Status},
    structs::{
        array::{FlatArray, MemoryRequirements, SolidArray},
        graph::{
            AllocateParams, FillIn, FillParams, FirstKernelParams, HostParams, InstantiateParams, KernelParams,
            UpdateResult,
        },
        launch::{LaunchAttribute, LaunchConfig},
        memory::{Access, AllocationProperties, Location, PoolProperties},
        stream::WordOperation,
        texture::{ResourceDescription, Sampling, ViewDescription},
    },
};

use crate::{
    argument::{Argument, Fault, Sizes},
    codec::{Malformed, Put, Reader},
    host_call::{self, HostCall},
    kinds::Kind,
    roles::Packed,
    scope::Scope,
    value::Value,
};

/// A structure whose fields are all values. `handles` are objects that the call uses and `results` those that it returns;
/// `addresses` are in device memory. All may be null.
macro_rules! structure {
    (
        $type:ident { $($field:ident),* } $(handles { $($handle:ident: $kind:ident),* })?
        $(results { $($result:ident: $result_kind:ident),* })? $(addresses { $($address:ident),* })? $(reserved { $($reserved:ident),* })?
    ) => {
        impl Value for $type {
            const BYTES: usize = size_of::<$type>();

            fn put(&self, to: &mut Vec<u8>) {
                let start = to.len();
                $(Value::put(&self.$field, to);)*
                $($((self.$handle as u64).put(to);)*)?
                $($((self.$result as u64).put(to);)*)?
                $($(self.$address.put(to);)*)?
                to.resize(start + Self::BYTES, 0);
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                let bytes = from.take(Self::BYTES)?;
                let reader = &mut Reader::new(bytes);
                Ok(Self {
                    $($field: Value::take(reader)?,)*
                    $($($handle: Value::take(reader)?,)*)?
                    $($($result: Value::take(reader)?,)*)?
                    $($($address: Value::take(reader)?,)*)?
                    $($($reserved: Default::default(),)*)?
                })
            }

            fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
                $(Value::to_driver(&mut self.$field, scope)?;)*
                $($(self.$handle = scope.driver_handle(Kind::$kind, self.$handle as u64)? as usize;)*)?
                $($(self.$address = scope.driver_address(self.$address);)*)?
                Ok(())
            }

            fn to_program(&mut self, scope: &mut Scope<'_>) {
                $(Value::to_program(&mut self.$field, scope);)*
                $($(self.$handle = scope.program_handle(Kind::$kind, self.$handle as u64) as usize;)*)?
                $($(self.$result = scope.program_handle(Kind::$result_kind, self.$result as u64) as usize;)*)?
            }
        }
    };
}

structure! { FlatArray { width, height, format, channels } }
structure! { SolidArray { width, height, depth, format, channels, flags } }
structure! { MemoryRequirements { bytes, alignment, reserved } }
structure! { Access { location, flags } }
// Memory that other processes can open is refused by its handle types, so the security attributes have no effect.
structure! { PoolProperties { allocation_type, handle_types, location, bytes_max, rest } reserved { security } }
structure! {
    AllocationProperties { allocation_type, handle_types, location, compression, is_for_rdma, usage, reserved }
    reserved { security }
}
structure! { Sampling {
    address_modes, filter, flags, anisotropy_max, mipmap_filter, level_bias, level_min, level_max, border, reserved
} }
structure! { ViewDescription { format, padding, size, levels, layers, reserved } }
structure! { FillParams { pitch, value, element_bytes, width, height } addresses { address } }
structure! { FillIn { fill } handles { context: Context } }
structure! { InstantiateParams { flags, result } handles { upload_stream: Stream } results { error_node: GraphNode } }
structure! { UpdateResult { result } results { error_node: GraphNode, error_from_node: GraphNode } }

/// What an array needs of the budget.
pub trait Shape {
    /// Returns the bytes, or nothing if no device has as many.
    fn bytes(&self) -> Option<u64>;
}

impl Shape for FlatArray {
    fn bytes(&self) -> Option<u64> {
        array_bytes([self.width, self.height, 0], self.format, self.channels)
    }
}

impl Shape for SolidArray {
    fn bytes(&self) -> Option<u64> {
        array_bytes([self.width, self.height, self.depth], self.format, self.channels)
    }
}

/// `CUarray_format`: the numbers end with the bytes of a channel, 1 to 4, or 0x10 and 0x20 for floats.
fn array_bytes(sizes: [usize; 3], format: u32, channels: u32) -> Option<u64> {
    let channel: u64 = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    };
    sizes.iter().try_fold(channel * u64::from(channels), |bytes, size| bytes.checked_mul((*size).max(1) as u64))
}

/// A session has one device, and no memory elsewhere.
impl Value for Location {
    const BYTES: usize = 8;

    fn put(&self, to: &mut Vec<u8>) {
        Value::put(&self.kind, to);
        Value::put(&self.id, to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self { kind: Value::take(from)?, id: Value::take(from)? })
    }

    fn to_driver(&mut self, _: &mut Scope<'_>) -> Answer {
        if self.device()? == 0 { Ok(()) } else { Err(Status::InvalidDevice) }
    }
}

/// `CUDA_HOST_NODE_PARAMS`: the program's function becomes one of the session.
impl Value for HostParams {
    const BYTES: usize = 16;

    fn put(&self, to: &mut Vec<u8>) {
        to.u64(self.function.map_or(0, |function| function as usize as u64));
        to.u64(self.data.expose_provenance() as u64);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (function, data) = (usize::take(from)?, usize::take(from)?);
        // SAFETY: on the way this is only a number; the program calls it if it gave it, and the session never does.
        let function = unsafe { std::mem::transmute::<usize, Option<HostFunction>>(function) };
        Ok(Self { function, data: std::ptr::with_exposed_provenance_mut(data) })
    }

    fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
        if let Some(function) = self.function {
            self.function = Some(host_call::run);
            let call = scope.host_call();
            call.function.store(function as usize as u64, Ordering::Release);
            call.data.store(self.data.expose_provenance() as u64, Ordering::Release);
            self.data = Arc::clone(call).into_data();
        }
        Ok(())
    }

    fn to_program(&mut self, _: &mut Scope<'_>) {
        if self.function.take().is_some() && !self.data.is_null() {
            // SAFETY: only nodes that this session made have a function, and their data is never freed.
            let call = unsafe { &*self.data.cast_const().cast::<HostCall>() };
            let (function, data) = (call.function.load(Ordering::Acquire), call.data.load(Ordering::Acquire));
            // SAFETY: as above, only a number on its way.
            self.function = unsafe { std::mem::transmute::<usize, Option<HostFunction>>(function as usize) };
            self.data = std::ptr::with_exposed_provenance_mut(data as usize);
        }
    }
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`. Access from other devices is left out, because a session has one.
impl Value for AllocateParams {
    const BYTES: usize = PoolProperties::BYTES + 16;

    fn put(&self, to: &mut Vec<u8>) {
        self.pool.put(to);
        self.bytes.put(to);
        self.address.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (pool, bytes, address) = (Value::take(from)?, Value::take(from)?, Value::take(from)?);
        Ok(Self { pool, accesses: 0, access_count: 0, bytes, address })
    }

    /// The address is a result.
    fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
        self.address = 0;
        self.pool.to_driver(scope)?;
        scope.charge(self.bytes as u64)
    }

    fn to_program(&mut self, scope: &mut Scope<'_>) {
        if scope.ok && self.address != 0 {
            scope.found(self.address, self.bytes as u64);
        }
    }
}

/// `CUstreamBatchMemOpParams`: waits and writes have an address, barriers and flushes have none.
impl Value for WordOperation {
    const BYTES: usize = size_of::<Self>();

    fn put(&self, to: &mut Vec<u8>) {
        let Self { kind, own_flags, address, value, flags, alias: _, rest: _ } = *self;
        let start = to.len();
        [kind, own_flags, flags, 0].put(to);
        [address, value].put(to);
        to.resize(start + Self::BYTES, 0);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut reader = Reader::new(from.take(Self::BYTES)?);
        let [kind, own_flags, flags, _] = <[u32; 4]>::take(&mut reader)?;
        let [address, value] = <[u64; 2]>::take(&mut reader)?;
        Ok(Self { kind, own_flags, address, value, flags, alias: 0, rest: 0 })
    }

    fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
        // `CU_STREAM_MEM_OP_WAIT_VALUE_32`, `_WRITE_VALUE_32`, `_WAIT_VALUE_64` and `_WRITE_VALUE_64`.
        if matches!(self.kind, 1 | 2 | 4 | 5) {
            self.address = scope.driver_address(self.address);
        }
        Ok(())
    }
}

/// `CUDA_RESOURCE_DESC`: the first word is an array, a mipmapped array or an address.
impl Value for ResourceDescription {
    const BYTES: usize = size_of::<Self>();

    fn put(&self, to: &mut Vec<u8>) {
        [self.kind, self.padding, self.flags, self.end].put(to);
        self.words.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [kind, padding, flags, end] = <[u32; 4]>::take(from)?;
        Ok(Self { kind, padding, words: Value::take(from)?, flags, end })
    }

    fn to_driver(&mut self, scope: &mut Scope<'_>) -> Answer {
        match self.kind {
            0 => self.words[0] = scope.driver_handle(Kind::Array, self.words[0])?,
            1 => self.words[0] = scope.driver_handle(Kind::MipmappedArray, self.words[0])?,
            2 | 3 => self.words[0] = scope.driver_address(self.words[0]),
            _ => return Err(Status::InvalidValue),
        }
        Ok(())
    }

    fn to_program(&mut self, scope: &mut Scope<'_>) {
        match self.kind {
            0 => self.words[0] = scope.program_handle(Kind::Array, self.words[0]),
            1 => self.words[0] = scope.program_handle(Kind::MipmappedArray, self.words[0]),
            _ => {}
        }
    }
}

/// Parameters of a kernel node. The library packs the kernel's arguments before it sends them.
impl Argument for In<KernelParams> {
    type Held = Option<(KernelParams, Option<Packed>)>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.is_null());
        if self.is_null() {
            return Ok(());
        }
        let KernelParams { first, kernel, context } = self.get()?;
        let FirstKernelParams { function, grid, block, shared_bytes, parameters: _, extra } = first;
        [function, kernel, context].iter().for_each(|handle| handle.put(to));
        [grid, block].put(to);
        shared_bytes.put(to);
        Packed::put(extra, to)
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        if !from.flag()? {
            return Ok(None);
        }
        let mut handles = [0; 3];
        for (handle, kind) in handles.iter_mut().zip([Kind::Function, Kind::Kernel, Kind::Context]) {
            *handle = scope.driver_handle(kind, from.u64()?)? as usize;
        }
        let [function, kernel, context] = handles;
        let [grid, block] = Value::take(from)?;
        let shared_bytes = from.u32()?;
        let (parameters, extra) = (In::NULL, In::NULL);
        let first = FirstKernelParams { function, grid, block, shared_bytes, parameters, extra };
        Ok(Some((KernelParams { first, kernel, context }, Packed::hold(from)?)))
    }

    fn lend(held: &mut Self::Held) -> Self {
        let Some((params, packed)) = held else { return Self::NULL };
        params.first.extra = packed.as_mut().map_or(In::NULL, Packed::extra);
        // SAFETY: the session keeps the structure until the call has ended.
        unsafe { Self::from_pointer(params) }
    }
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT`, `CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT` and
/// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`.
const PROGRAMMATIC_EVENT: u32 = 7;
const COMPLETION_EVENT: u32 = 12;
const UPDATABLE_NODE: u32 = 13;
/// Maximum attributes of a launch; the headers name fewer.
const ATTRIBUTES_MAX: usize = 64;

/// A launch with its attributes.
impl Argument for In<LaunchConfig> {
    type Held = Option<(LaunchConfig, Vec<LaunchAttribute>)>;

    fn send(self, _: &Sizes, to: &mut Vec<u8>) -> Answer {
        to.flag(!self.is_null());
        if self.is_null() {
            return Ok(());
        }
        let LaunchConfig { grid, block, shared_bytes, stream, attributes, attribute_count } = self.get()?;
        let count = if attributes.is_null() { 0 } else { attribute_count as usize };
        if count > ATTRIBUTES_MAX {
            return Err(Status::InvalidValue);
        }
        [grid, block].put(to);
        shared_bytes.put(to);
        stream.put(to);
        to.u64(count as u64);
        for index in 0..count {
            let LaunchAttribute { id, padding: _, value } = attributes.at(index)?;
            id.put(to);
            value.put(to);
        }
        Ok(())
    }

    fn hold(from: &mut Reader<'_>, scope: &mut Scope<'_>) -> Result<Self::Held, Fault> {
        if !from.flag()? {
            return Ok(None);
        }
        let [grid, block] = Value::take(from)?;
        let shared_bytes = from.u32()?;
        let stream = scope.driver_handle(Kind::Stream, from.u64()?)? as usize;
        let mut attributes = Vec::new();
        for _ in 0..from.length()? {
            let (id, mut value) = (from.u32()?, <[u64; 8]>::take(from)?);
            match id {
                PROGRAMMATIC_EVENT | COMPLETION_EVENT => value[0] = scope.driver_handle(Kind::Event, value[0])?,
                UPDATABLE_NODE => return Err(Status::NotSupported.into()),
                _ => {}
            }
            attributes.push(LaunchAttribute { id, padding: 0, value });
        }
        let attribute_count = attributes.len() as u32;
        let config = LaunchConfig { grid, block, shared_bytes, stream, attributes: In::NULL, attribute_count };
        Ok(Some((config, attributes)))
    }

    fn lend(held: &mut Self::Held) -> Self {
        let Some((config, attributes)) = held else { return Self::NULL };
        // SAFETY: the session keeps both until the call has ended.
        unsafe {
            config.attributes = In::from_pointer(attributes.as_ptr());
            Self::from_pointer(config)
        }
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_surface::structs::{array::SolidArray, memory::PoolProperties};

    use super::Shape;
    use crate::{codec::Reader, value::Value};

    #[test]
    fn a_structure_has_as_many_bytes_on_the_way_as_in_c() {
        let mut body = Vec::new();
        PoolProperties::on(0).put(&mut body);
        assert_eq!(body.len(), size_of::<PoolProperties>());
        let taken = PoolProperties::take(&mut Reader::new(&body)).unwrap();
        assert_eq!((taken.allocation_type, taken.location.kind), (1, 1));
    }

    #[test]
    fn an_array_is_charged_by_its_elements() {
        let shape = SolidArray { width: 3, height: 0, depth: 0, format: 0x20, channels: 4, flags: 0 };
        assert_eq!(shape.bytes(), Some(48));
        assert_eq!(SolidArray { width: usize::MAX, ..shape }.bytes(), None);
    }
}
