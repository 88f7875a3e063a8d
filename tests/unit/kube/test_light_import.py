import subprocess
import sys

PROGRAM = """
import sys
from trainium_eks.kube import light_import
make, configuration, config = light_import.api_client()
typed = [name for name in sys.modules if name.startswith(("kubernetes.client.models.", "kubernetes.client.api."))]
assert not typed, typed[:3]
assert not {"requests", "requests_oauthlib", "oauthlib", "dateutil.parser", "google.auth"} & sys.modules.keys()
login = config.kube_config
assert issubclass(login.oauthlib.oauth2.rfc6749.errors.InvalidClientIdError, Exception)
assert type(login.OAuth2Session(client_id="us")) is sys.modules["requests_oauthlib"].OAuth2Session
assert config.new_client_from_config and make(configuration=configuration())
from kubernetes import client, watch
from kubernetes.client.models import *
import kubernetes.stream
assert kubernetes.__version__ and not hasattr(client, "V1Pods")
assert client.ApiClient is make and client.Configuration is configuration
assert client.V1Pod is V1Pod and client.CoreV1Api().api_client
assert light_import.api_client() == (make, configuration, config)
"""


def test_client_comes_without_typed_apis_until_a_program_uses_them():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr


THREADS = """
import threading
from trainium_eks.kube import light_import
light_import.api_client()
import kubernetes.stream
found = []
threads = [threading.Thread(target=lambda: found.append(kubernetes.client.CoreV1Api)) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
assert len(found) == 8, found
"""


def test_threads_wait_for_names_that_another_one_loads():
    ran = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False, timeout=60)
    assert not ran.returncode, ran.stderr
