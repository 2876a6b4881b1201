//! The requirements of a job that forwarding takes into account.

use std::fmt;

use gpufleet_schema::{DeviceClass, Requires};

/// The requirements of a job that a device class must meet.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    pub requires: &'a Requires,
    /// Whether the job's inputs or outputs use the blob store.
    pub blob_store: bool,
    /// The minimum device memory with which the job may run.
    pub memory_bytes_min: u64,
}

impl Need<'_> {
    pub fn is_met_by(&self, class: &DeviceClass) -> bool {
        class.meets(self.requires)
            && class.memory_bytes >= self.memory_bytes_min
            && (class.blob_store || !self.blob_store)
    }
}

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requires { compute_capability_min, memory_bytes_min, device } = self.requires;
        let mut parts = Vec::new();
        parts.extend(compute_capability_min.map(|[major, minor]| format!("compute capability {major}.{minor}")));
        parts.extend(memory_bytes_min.map(|bytes| format!("{bytes} bytes of memory")));
        parts.extend(device.as_ref().map(|name| format!("a device with {name:?} in its name")));
        parts.extend(self.blob_store.then(|| "a blob store (--blobs or GPUFLEET_BLOBS)".to_owned()));
        if parts.is_empty() { f.write_str("a device in service") } else { f.write_str(&parts.join(" and ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_meets_a_need_with_its_memory_and_its_blob_store_as_well() {
        let requires = Requires { compute_capability_min: Some([8, 0]), ..Requires::default() };
        let need = |blob_store, memory_bytes_min| Need { requires: &requires, blob_store, memory_bytes_min };
        let class = |blob_store| DeviceClass::new("GPU", [8, 0], 100, blob_store);
        assert!(need(false, 100).is_met_by(&class(false)));
        assert!(!need(false, 101).is_met_by(&class(false)));
        assert!(!need(true, 0).is_met_by(&class(false)));
        assert!(need(true, 0).is_met_by(&class(true)));
        assert!(need(true, 0).to_string().starts_with("compute capability 8.0 and a blob store"));
        let none = Requires::default();
        let need = Need { requires: &none, blob_store: false, memory_bytes_min: 0 };
        assert_eq!(need.to_string(), "a device in service");
    }
}
