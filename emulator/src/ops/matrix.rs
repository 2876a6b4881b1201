//! Products of small matrices whose elements lie spread over the registers of a warp: which register of which lane
//! holds what ([`layout`]), what its bits mean ([`element`]), and the products themselves ([`product`]).

pub mod element;
pub mod layout;
pub mod product;
