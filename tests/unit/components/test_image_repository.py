from components.image_repository import default_name
from trainium_eks.model.config import repository
from trainium_eks.model.config.repository import ImageRepositoryConfig


def test_default_name_is_valid():
    for stack in ("dev", "Dev-2", "gpu.eu_1"):
        assert repository.validate(ImageRepositoryConfig(name=default_name("trainium-eks", stack))) == []
