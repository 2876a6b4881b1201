//! Decides which programs a pool runs, by the origin of their code.
//!
//! The producer chooses the pool, so the broker's permissions on routing keys restrict it: a producer that may run only
//! the catalog gets permission only for a pool that runs only the catalog.

use std::str::FromStr;

use gpufleet_schema::{Program, PublicKey, Signature};

/// The value of `allow=` in a pool's settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Allow {
    /// Only the worker's own catalog kernels.
    Catalog,
    /// Catalog kernels, and CUDA C, PTX and cubins that a trusted key has signed.
    Signed,
    /// Any program.
    #[default]
    Source,
}

/// A word that is not a policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("allow={0}: use catalog, signed or source")]
pub struct UnknownAllow(String);

/// Why a pool does not run a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("this pool runs catalog kernels only, but the program is {0}; submit to another pool")]
    NotCatalog(&'static str),
    #[error("this pool requires a signature by a trusted key, but the {0} is not signed; submit with --sign-key")]
    NotSigned(&'static str),
    #[error(
        "this pool requires a signature by a trusted key, but the {kind} {why}; sign it with a key that its workers trust"
    )]
    NotTrusted { kind: &'static str, why: String },
}

impl FromStr for Allow {
    type Err = UnknownAllow;

    fn from_str(text: &str) -> Result<Self, UnknownAllow> {
        match text {
            "catalog" => Ok(Self::Catalog),
            "signed" => Ok(Self::Signed),
            "source" => Ok(Self::Source),
            _ => Err(UnknownAllow(text.to_owned())),
        }
    }
}

impl Allow {
    /// Checks whether the pool runs the program. Call it before any other code reads the program.
    pub fn check(
        self,
        program: &Program<'_>,
        signature: Option<&Signature>,
        trusted: &[PublicKey],
    ) -> Result<(), Forbidden> {
        let kind = program.kind();
        match (self, program) {
            (Self::Source, _) | (_, Program::Catalog(_)) => Ok(()),
            (Self::Catalog, _) => Err(Forbidden::NotCatalog(kind)),
            (Self::Signed, _) => {
                let signature = signature.ok_or(Forbidden::NotSigned(kind))?;
                let verified = signature.verify(program, trusted);
                verified.map_err(|why| Forbidden::NotTrusted { kind, why: why.to_string() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::SigningKey;

    use super::*;

    fn program() -> Program<'static> {
        Program::Ptx("ptx".into())
    }

    #[test]
    fn the_catalog_runs_everywhere_and_other_code_where_it_is_allowed() {
        let catalog = Program::Catalog("saxpy".to_owned());
        for allow in [Allow::Catalog, Allow::Signed, Allow::Source] {
            assert_eq!(allow.check(&catalog, None, &[]), Ok(()));
        }
        assert_eq!(Allow::Source.check(&program(), None, &[]), Ok(()));
        assert_eq!(Allow::Catalog.check(&program(), None, &[]), Err(Forbidden::NotCatalog("ptx")));
        assert_eq!(Allow::Signed.check(&program(), None, &[]), Err(Forbidden::NotSigned("ptx")));
    }

    #[test]
    fn a_signature_counts_for_the_program_that_it_is_of_and_by_a_key_that_is_trusted() {
        let key = SigningKey::generate().unwrap();
        let signature = key.sign(&program());
        let check = |program: &Program<'_>, trusted: &[PublicKey]| {
            Allow::Signed.check(program, signature.as_ref(), trusted).map_err(|forbidden| forbidden.to_string())
        };
        assert_eq!(check(&program(), &[key.public()]), Ok(()));
        assert!(check(&program(), &[]).unwrap_err().contains(&key.public().to_string()));
        assert!(
            check(&Program::Ptx("other".into()), &[key.public()]).unwrap_err().contains("does not match the program")
        );
    }
}
