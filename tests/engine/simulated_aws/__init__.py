"""The simulated AWS as Pulumi providers: the real engine runs a program without an account.

Pulumi's engine attaches to providers that already run when ``PULUMI_DEBUG_PROVIDERS`` names their ports. The
packages ``aws``, ``eks`` and ``kubernetes`` are served here on loopback; their answers come from the table that plans
come from (:mod:`trainium_eks.plan.resource_types.simulation`), and the things that exist are kept in one file. So
preview, update, replacement, refresh and destroy are the engine's own, and only the clouds are made up.

:func:`~engine.simulated_aws.server.serving` serves them while a test needs them.
"""
