"""Controllers of nodes: HyperNodes, by which Volcano's scheduler knows the switches of EC2's network, and the gate of
untested nodes."""
