//! Products of small matrices whose elements are distributed over the registers of a warp: which register of which lane
//! holds which element ([`layout`]), how its bits are read ([`element`]), and the products themselves ([`product`]).

pub mod element;
pub mod layout;
pub mod product;
