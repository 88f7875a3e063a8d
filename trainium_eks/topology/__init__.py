"""HyperNodes: the switches of EC2's network, as Volcano's scheduler knows them, and the controller that keeps them."""
