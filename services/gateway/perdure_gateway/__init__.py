"""The public HTTP API: `bootstrap.build_app` makes it, `server.GatewayServer` serves it."""
