"""Stringline: robotics policies with 3D-position-encoded vision.

The names below are the public API: what programs import and what YAML files and checkpoints name as
`_target_`. They are imported on first use (PEP 562), so `import stringline` loads no library. All
other modules are internal and may move.
"""

import warnings
from importlib import import_module

# dm_control looks for a screen when it is imported; this package renders without one, so its
# warning has no meaning here.
warnings.filterwarnings("ignore", message=r".*The DISPLAY environment variable is missing")

PUBLIC: dict[str, dict[str, tuple[str, ...]]] = {
    "Data and embodiments": {
        "datasets.contract.contract": ("Camera", "Contract"),
        "datasets.embodiments.aloha": ("ALOHA",),
        "datasets.embodiments.embodiment": (
            "CameraMount",
            "CapsuleMount",
            "Chain",
            "Embodiment",
            "JointSpec",
            "Link",
            "Vector",
            "FingerTravel",
        ),
        "datasets.embodiments.embodiment_source": ("load_embodiment",),
        "datasets.embodiments.iiwa14": ("IIWA14", "IIWA14_BIMANUAL"),
        "datasets.embodiments.inverse_kinematics": ("InverseKinematics",),
        "datasets.embodiments.mjcf_parts": (
            "DRAWN",
            "PAD_CONTACT",
            "add_camera",
            "couple_fingers",
            "finger_bits",
        ),
        "datasets.embodiments.transforms": ("Matrix", "pose", "rotation_about"),
        "datasets.loading.window_settings": ("WindowSettings",),
        "datasets.loading.windows": ("Windows",),
        "datasets.store.episode": ("EpisodeAttributes",),
        "datasets.store.store": ("EpisodeStore",),
    },
    "Labelled images": {
        "datasets.images.labelled_image": (
            "Box3d",
            "LabelledClip",
            "LabelledImage",
            "LabelledObject",
        ),
        "datasets.images.classification": (
            "CifarImages",
            "ClipArtImages",
            "EmojiImages",
            "ImageFolder",
            "Ucf101Clips",
        ),
        "datasets.images.coco": ("CocoImages", "write_coco", "RgbdImages"),
        "datasets.images.image_store": ("ImageStore", "ImageWriter"),
        "datasets.images.reading": ("Omissions", "ItemReference"),
        "datasets.images.omni3d": ("Omni3dImages", "write_omni3d"),
    },
    "Augmentation": {
        "datasets.augmentation.augment": ("Augmentation", "LightAugmentation", "TextureOverlay"),
        "datasets.augmentation.camera_augmentation": (
            "ColourDropout",
            "ColourSensor",
            "CropAndResize",
            "StereoDepth",
        ),
    },
    "Foreign formats": {
        "datasets.formats.act_hdf5": ("ActHdf5Reader", "ActHdf5Writer"),
        "datasets.formats.vector_layout": ("AlohaLayout", "DescribedLayout", "NamedLayout"),
        "datasets.formats.diffusion_policy": (
            "DiffusionPolicyReader",
            "DiffusionPolicyWriter",
            "UmiReader",
        ),
        "datasets.formats.lerobot": ("LeRobotReader",),
        "datasets.formats.lerobot_writer": ("LeRobotWriter",),
        "datasets.formats.robomimic": ("LiberoReader", "RobomimicReader"),
        "datasets.formats.mcap": ("McapReader",),
        "datasets.formats.rlds": ("RldsReader",),
    },
    "Position encodings": {
        "encoders.positions.absolute": ("LearnedEncoding", "SinusoidalEncoding"),
        "encoders.positions.bases": (
            "ButterflyGivens",
            "CayleyBasis",
            "ExponentialBasis",
            "FourierBasis",
            "GivensBasis",
            "HouseholderBasis",
        ),
        "encoders.positions.frequencies": (
            "CirculantFrequencies",
            "LinearlyDependentFrequencies",
            "AxialFrequencies",
            "MixedFrequencies",
            "StillPlanes",
        ),
        "encoders.positions.lie": ("ComRopeAp", "ComRopeLd", "LieRE"),
        "encoders.positions.encoding": ("PositionEncoding",),
        "encoders.positions.rotary": (
            "CayleyString",
            "CirculantString",
            "LiereCommute",
            "Rope",
            "RopeInLearnedBasis",
            "RopeMixed",
            "VisionLlamaRope",
            "NoEncoding",
            "RotaryEncoding",
            "TensorProductString",
        ),
    },
    "Coordinates and vision": {
        "encoders.coordinates.canonical": ("CylindricalPlaces", "SphericalPlaces"),
        "encoders.coordinates.coordinates": (
            "GridPlaces",
            "MetricPlaces",
            "PatchDepthPlaces",
            "Frames",
            "RayPlaces",
        ),
        "encoders.coordinates.geometry": ("View",),
        "encoders.pretrained.backbone": ("PretrainedImages",),
        "encoders.pretrained.transformers_models": ("MonocularDepth",),
        "encoders.pretrained.convolutional": ("ResNet",),
        "encoders.pretrained.vision_transformer": ("PretrainedVisionTransformer",),
        "encoders.vision.attention": ("PositionalAttention", "LinearAttention"),
        "encoders.vision.patches": (
            "ColourOnly",
            "DepthChannel",
            "NormalsOnly",
            "SurfaceNormals",
            "ConvolutionalStem",
            "PatchProjection",
        ),
        "encoders.vision.rgbd": ("RgbdTokens",),
    },
    "Perception": {
        "encoders.perception.classifier": ("Classifier",),
        "encoders.perception.box_detectors": ("Detector2d", "Detector3d"),
        "encoders.perception.image_encoder": ("ImageEncoder",),
        "encoders.perception.perception_network": ("load_perception",),
        "encoders.perception.text_tower": ("PretrainedTextTower", "TextTower"),
        "encoders.perception.studies": (
            "CoordinateOffset",
            "FrameOrder",
            "PatchShuffling",
            "ResolutionTransfer",
        ),
        "encoders.perception.two_towers": ("TwoTowers",),
    },
    "Training": {
        "encoders.training.loggers": ("TensorBoard", "WeightsAndBiases"),
        "encoders.training.trainer": ("Trainer",),
    },
    "Policies": {
        "policies.action_spaces.gripper_poses": ("GripperPoses",),
        "policies.action_spaces.space": ("RelativeJoints", "OpenClose"),
        "policies.algorithms.act": ("ActPolicy",),
        "policies.algorithms.chunk_policy": (
            "ChunkPolicy",
            "masked_mean",
            "ActionPlaces",
            "PolicySettings",
        ),
        "policies.algorithms.diffusion": ("DiffusionPolicy",),
        "policies.algorithms.energy": ("EnergyPolicy",),
        "policies.algorithms.flow": ("FlowPolicy",),
        "policies.algorithms.keypose_policy": ("KeyposePolicy",),
        "policies.algorithms.learned_policy": ("LearnedPolicy",),
        "policies.algorithms.posture": ("Posture",),
        "policies.checkpoints.load": ("load_policy", "open_policy"),
        "policies.chunks.chunk": ("ActionChunk", "Policy", "Session"),
        "policies.networks.denoiser": ("TransformerDenoiser",),
        "policies.networks.unet": ("UnetDenoiser",),
        "policies.observation.interfaces": ("ObservationHistory", "ConditioningTokens"),
        "policies.observation.image_encoders": (
            "FeatureMapEncoder",
            "KeypointEncoder",
            "PlainVisionEncoder",
        ),
        "policies.observation.instruction": ("TaskEmbedding", "TextEmbedding"),
        "policies.observation.observation_settings": ("EncoderSettings",),
        "policies.observation.normaliser": (
            "MeanStdNormaliser",
            "MinMaxNormaliser",
            "QuantileNormaliser",
        ),
        "policies.observation.observation_encoder": ("ObservationEncoder",),
        "policies.observation.point_encoder": ("PointEncoder",),
        "policies.observation.pointnet_encoder": ("PointNetEncoder",),
        "policies.remote.access": ("ServerAccess",),
        "policies.remote.client": ("OpenpiPolicy", "RemotePolicy"),
        "policies.remote.server": ("serve",),
    },
    "Simulation": {
        "sim.collection.demonstration": ("record_episode",),
        "sim.environment.environment": ("TaskEnvironment",),
        "sim.evaluation.runner": ("Evaluation",),
        "sim.experts.expert_registry": ("make_expert",),
        "sim.experts.motion": ("Grasp", "both_ways", "gripper_pose"),
        "sim.experts.skills": ("ScriptedExpert", "Skills"),
        "sim.props.objects": ("Graspable",),
        "sim.props.insertion_parts": ("Block",),
        "sim.props.mesh_objects": ("MeshFolder",),
        "sim.props.prop": ("FLAT_CONTACT", "Prop"),
        "sim.robots.workcells": ("ALOHA_CELL", "KUKA_CELL", "StartRange", "Workcell"),
        "sim.rollout.cluster": ("LocalCluster", "RayCluster", "SlurmCluster"),
        "sim.statistics.intervals": ("Rate",),
        "sim.tasks.tabletop": ("GoalTask", "TabletopTask"),
        "sim.tasks.kuka_tasks": ("KukaPick", "KukaPlace"),
        "sim.tasks.success": ("ContactState",),
        "sim.train": ("train_policy",),
        "sim.collection.takeovers": ("Takeovers",),
        "sim.worlds.task_settings": ("TaskSettings",),
        "sim.worlds.world_registry": ("open_world",),
    },
    "Robots": {
        "real_robot.driver_interface.driver": (
            "ArmDriver",
            "ArmState",
            "RobotNotReadyError",
            "SafeCommand",
        ),
        "real_robot.emulated_evaluation.loop_evaluation": ("LoopEvaluation",),
        "real_robot.robots.backends": ("ArmBackend",),
        "real_robot.safety.filter": ("SafetyFilter",),
        "real_robot.safety.limits": ("SafetyLimits",),
    },
}
"""The public names by subject and by the module that defines them."""

HOME = {
    name: f"stringline.{module}"
    for subject in PUBLIC.values()
    for module, names in subject.items()
    for name in names
}
"""The module of each public name."""

__all__ = sorted(HOME)  # noqa: PLE0605  The list is computed, so that each name is written once.


def __getattr__(name: str) -> object:
    """Imports a public name on its first use.

    Raises:
        AttributeError: The name is not public.
        ImportError: The name needs a package that is not installed.
    """
    if name not in HOME:
        raise AttributeError(
            f"module 'stringline' has no public name {name!r}; docs/api.md lists them"
        )
    try:
        module = import_module(HOME[name])
    except ModuleNotFoundError as error:
        # Imported here, so that `import stringline` loads nothing.
        from stringline.datasets.command.installation import missing_package

        if (missing := missing_package(error)) is None:
            raise
        raise ModuleNotFoundError(f"stringline.{name} needs {missing}", name=error.name) from error
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names beside the module's own."""
    return sorted({*globals(), *__all__})
