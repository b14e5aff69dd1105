//! A model of the whole protocol over the functions that ship, checked by stateright.
