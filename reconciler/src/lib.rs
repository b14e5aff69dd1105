//! Decides what each Bottlerocket host should do next, and sees to it: slots, cordon, drain, grant, uncordon.
